/* `steps` rows of b into a few rows of c, along all columns: whole groups in as many vectors as registers hold, then the
   vectors of a tile, then single columns.
   @ROWS   rows of c
   @GROUP  steps of a whole group
   @GROUPS @TILES @SINGLES  the three loops: band_columns.c
*/
static __attribute__((noinline)) void band_@ROWS(
    int64_t steps, int64_t columns, const T *a, const T *b, T *c, int64_t first, int64_t bp, int64_t cp) {
  int64_t j = 0;
  if (steps == @GROUP)
@GROUPS
@TILES
@SINGLES
}
