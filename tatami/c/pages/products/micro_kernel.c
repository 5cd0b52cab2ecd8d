/* c[rows][nr] += a * b over k0 <= k < k1, in balanced panels of at most @MR rows; k0 = 0: c is overwritten.
   @ELEMENT   types: element.c
   @TILES     the function of each height of a panel (panel.c), or its prototype where it is a unit of its own
   @NAME      the routine
   @B         element of b: T, or B for one of a byte
   @MR @LESS  rows of the highest panel; one less
   @FETCHES   True if rows of b follow each other, so that the next block can be fetched ahead
   @PARTS     panels that share this
   @NEXT      elements of b from one row to the next
   @CASES     a call for each height
   @REFUSED   fault for a height that the unit was not made for
   @STEP      elements of a from one panel to the next
   @C_PITCH   elements of c from one row to the next
*/
@ELEMENT

@TILES
int @NAME(void *const *buffers, const int64_t *sizes) {
  const T *a = buffers[0];
  const @B *b = buffers[1];
  T *c = buffers[2];
  const int64_t rows = sizes[0], depth = sizes[1], k0 = sizes[2], k1 = sizes[3];
  int64_t panels = (rows + @LESS) / @MR;
  int64_t least = panels > 1 ? rows / panels : rows, rest = rows - least * panels, over = 0;
@if FETCHES
  const int64_t parts = 0 < panels && panels < @PARTS ? panels : @PARTS, some = (@PARTS + parts - 1) / parts;
@end
  for (int64_t p = 0; p < panels; ++p) {
    int64_t r = least;
    over += rest;
    if (over >= panels) over -= panels, ++r;
@if FETCHES
    /* what follows b, a part of it under each panel: the next block of k, or the next sliver */
    const @B *next = b + (k1 - k0 + p % parts * (k1 - k0) / parts) * @NEXT;
@end
    switch (r) {
    @CASES
    default: return @REFUSED;
    }
    a += @STEP;
    c += r * @C_PITCH;
  }
  return 0;
}
