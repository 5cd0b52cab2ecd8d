/* A transposing copy in blocks of @LANES x @LANES: loads along k, transposed in registers by halving exchanges, stored along the
   columns. A store may run over the end of its row into the next one, which is written later; the last rows are stored exactly.
   @ELEMENT  types: element.c
   @NAME     the routine
   @FROM     type of an element that is read
   @ONE      element j of line k, as one of the result
   @LANES @TWICE  elements of a vector; two vectors
   @LOADS    rows r0 ... of a block
   @SHUFFLES the exchanges
   @STORES   whole rows of the result
   @MASKED   these rows under a mask of the columns that there are; empty where no instruction stores so
   @SHORT    rows r0 ... of a block with fewer lines than a vector; empty where no instruction loads so
   @SOME     the stores of @MASKED for as many lines as there are
   @PARTS    rows of the result kept in `part`, to be stored one by one
*/
@ELEMENT

int @NAME(void *const *buffers, const int64_t *sizes) {
  T *to = buffers[0];
  const @FROM *from = buffers[1];
  const int64_t columns = sizes[0], pitch = sizes[1], stride = sizes[2], kc = sizes[3];
  int64_t k = 0;
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
  for (; k + @LANES <= kc; k += @LANES)
    for (int64_t j = 0; j < columns; j += @LANES) {
      int over = columns - j < @LANES;
      {
        @LOADS
        @SHUFFLES
        if (!over || (columns == pitch && columns < @LANES && k + @TWICE <= kc)) {
          @STORES
        } else {
@if MASKED
#if defined(__AVX512F__) && !defined(__clang__)
          uint16_t live = (uint16_t)((1u << (columns - j)) - 1);
          @MASKED
#else
@end
          V part[@LANES];
          @PARTS
          for (int i = 0; i < @LANES; ++i)
            for (int64_t q = j; q < columns; ++q) to[(k + i) * pitch + q] = part[i][q - j];
@if MASKED
#endif
@end
        }
      }
    }
@if SHORT
#if defined(__AVX512F__) && !defined(__clang__)
  const int64_t rest = kc - k;
  if (rest > 2) {
    const V zero = {0};
    const uint16_t some = (uint16_t)((1u << rest) - 1);
    for (int64_t j = 0; j < columns; j += @LANES) {
      const uint16_t live = columns - j < @LANES ? (uint16_t)((1u << (columns - j)) - 1) : (uint16_t)-1;
      @SHORT
      @SHUFFLES
      @SOME
    }
    k = kc;
  }
#endif
@end
#endif
#endif
  for (; k < kc; ++k)
    for (int64_t j = 0; j < columns; ++j) to[k * pitch + j] = @ONE;
  return 0;
}
