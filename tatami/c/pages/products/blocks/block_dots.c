/* c[rows][nr] = sum over blocks of k of (sum of q * (codes - zero)) * (row scale * column scale): q and codes are integers, whose sums
   of a block are exact.
   @TYPES    block_dots_types.c
   @PANELS   the function of each number of rows: block_dots_panel.c
   @NAME     the routine
   @MOST     most rows that are multiplied together
   @CASES    a call for each number of rows
*/
@TYPES
@PANELS
int @NAME(void *const *buffers, const int64_t *sizes) {
  const int8_t *q = buffers[0];
  const W *b = buffers[1];
  T *c = buffers[2];
  const T *row_scales = buffers[3], *scales = buffers[4];
  const int8_t *zeros = buffers[5];
  const int64_t rows = sizes[0], cp = sizes[1], depth = sizes[2], block = sizes[3];
  const int64_t blocks = (depth + block - 1) / block;
  for (int64_t r = 0; r < rows; r += @MOST) {
    switch (rows - r < @MOST ? rows - r : @MOST) {
    @CASES
    }
    q += @MOST * depth;
    row_scales += @MOST * blocks;
    c += @MOST * cp;
  }
  return 0;
}
