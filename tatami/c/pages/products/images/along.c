/* c[row][column] += sum over k of a[row][k] * b[column][k], with lanes along k. k runs over images, over the lines of an image,
   along a line; what lies past the end of a line counts as 0 on both sides.
   @ELEMENT  types: element.c
   @MASK     type of a mask: a signed integer of the element's size
   @VECTOR   bytes of a vector
   @TILES    the function of each number of rows (along_panel.c)
   @NAME     the routine
   @MR @LESS most rows of a panel; one less
   @NR       columns of a tile
   @CASES    a call for each number of rows
   @REFUSED  fault for a number of rows that there is no tile for
*/
@ELEMENT
typedef @MASK M __attribute__((vector_size(@VECTOR), may_alias));
typedef struct {
  int64_t images, a_image, b_image, lines, a_line, b_line, length;
} Run;

static inline __attribute__((always_inline)) V part(const T *p, M live) { return (V)((M) * (const U *)p & live); }

@TILES
int @NAME(void *const *buffers, const int64_t *sizes) {
  const T *b = buffers[1];
  T *c = buffers[2];
  const int64_t *at = buffers[3];
  const int64_t rows = sizes[0], pitch = sizes[1], columns = sizes[2], c_pitch = sizes[3], first = sizes[4];
  const Run run = {sizes[5], sizes[6], sizes[7], sizes[8], sizes[9], sizes[10], sizes[11]};
  const int64_t panels = (rows + @LESS) / @MR;
  for (int64_t j = 0; j < columns; j += @NR) {
    const T *a = buffers[0];
    T *to = c + j;
    for (int64_t p = 0, done = 0; p < panels; ++p) {
      const int64_t r = rows * (p + 1) / panels - done;
      switch (r) {
      @CASES
      default: return @REFUSED;
      }
      a += r * pitch;
      to += r * c_pitch;
      done += r;
    }
  }
  return 0;
}
