/* Few rows of a times a wide b, as it lies in memory: @GROUP rows of b at a time, each group along all columns.
   @ELEMENT  types: element.c
   @BANDS    the function of each height: band.c
   @NAME     the routine
   @GROUP    rows of b that are read together
   @CASES    a call for each height
   @REFUSED  fault for a height that the unit was not made for
*/
@ELEMENT

@BANDS
int @NAME(void *const *buffers, const int64_t *sizes) {
  const T *a = buffers[0], *b = buffers[1];
  T *c = buffers[2];
  const int64_t k0 = sizes[2], k1 = sizes[3], bp = sizes[4], cp = sizes[5], columns = sizes[6];
  int64_t k = k0;
  do {
    const int64_t steps = k1 - k < @GROUP ? k1 - k : @GROUP;
    switch (sizes[0]) {
    case 0: break;
    @CASES
    default: return @REFUSED;
    }
    k += @GROUP;
    b += @GROUP * bp;
  } while (k < k1);
  return 0;
}
