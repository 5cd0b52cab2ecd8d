/* Columns of a matrix copied as slivers of @NR columns. Rows are read as they lie, @MR at a time, so that a sliver gets whole
   cache lines of several rows at once; the last sliver is filled up with zeros.
   @ELEMENT  types: element.c
   @NAME     the routine
   @NR @MR   columns of a sliver; rows that are copied together
   @WHOLE    vectors of all @MR rows of a sliver
   @ONE      vectors of row q of a sliver
*/
@ELEMENT

int @NAME(void *const *buffers, const int64_t *sizes) {
  T *to = buffers[0];
  const T *from = buffers[1];
  const int64_t rows = sizes[0], columns = sizes[1], pitch = sizes[2], each = sizes[3];
  const int64_t full = columns / @NR, rest = columns % @NR;
  for (int64_t k = 0; k < rows; k += @MR) {
    const int64_t some = rows - k < @MR ? rows - k : @MR;
    const T *b = from + k * pitch;
    T *a = to + k * @NR;
    for (int64_t s = 0; s < full; ++s, a += each, b += @NR) {
      if (some == @MR) {
        @WHOLE
      } else {
        for (int64_t q = 0; q < some; ++q) {
          @ONE
        }
      }
    }
    if (rest)
      for (int64_t q = 0; q < some; ++q)
        for (int64_t j = 0; j < @NR; ++j) a[q * @NR + j] = j < rest ? b[q * pitch + j] : 0;
  }
  return 0;
}
