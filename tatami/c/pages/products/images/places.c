/* c[m][columns][nr] = sums over k of places of an image times b: for a panel of columns after the other.
   @ELEMENT    types: element.c
   @TILES      the function of each width of a panel: places_panel.c
   @NAME       the routine
   @MOST @LESS columns of the widest panel; one less
   @ONE_PANEL  True if all columns have to be one panel, since c has further rows
   @CASES      a call for each width
   @REFUSED    fault for a width that the unit was not made for
   @NEXT       elements of c from one column to the next
*/
@ELEMENT

@TILES
int @NAME(void *const *buffers, const int64_t *sizes) {
  const T *a = buffers[0], *b = buffers[1];
  T *c = buffers[2];
  const int64_t columns = sizes[0], pitch = sizes[1], k0 = sizes[2], k1 = sizes[3];
  const int64_t *table = (const int64_t *)buffers[3] + k0;
  const int64_t panels = (columns + @LESS) / @MOST;
  const int64_t least = panels > 1 ? columns / panels : columns, rest = columns - least * panels;
  int64_t over = 0;
@if ONE_PANEL
  if (panels > 1) return @REFUSED;
@end
  for (int64_t p = 0; p < panels; ++p) {
    int64_t r = least;
    over += rest;
    if (over >= panels) over -= panels, ++r;
    switch (r) {
    @CASES
    default: return @REFUSED;
    }
    a += r;
    c += r * @NEXT;
  }
  return 0;
}
