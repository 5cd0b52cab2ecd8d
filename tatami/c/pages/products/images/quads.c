/* c[y][x] = all places of a window over bytes of a, four columns a multiply-add: a vector of columns after the other, and along each
   some rows together.
   @ELEMENT    types: element.c
   @QUAD       function that makes a vector of quads
   @NAME       the routine
   @WEIGHTS    each quad of weights, in all lanes
   @LANES      results of a vector
   @STEP @DOWN operand columns from a result to the next; operand rows
   @ROWS       rows together
   @SEVERAL @ONE  results of these rows; of one
*/
@ELEMENT
typedef uint8_t B;

@QUAD

int @NAME(void *const *buffers, const int64_t *sizes) {
  const T *w = buffers[1];
  const int64_t rows = sizes[0], columns = sizes[1], pitch = sizes[2];
  @WEIGHTS
  for (int64_t x = 0; x < columns; x += @LANES) {
    const int64_t first = x + @LANES > columns && columns >= @LANES ? columns - @LANES : x;
    const B *p = (const B *)buffers[0] + first * @STEP;
    T *to = (T *)buffers[2] + first;
    int64_t y = 0;
    for (; y + @ROWS <= rows; y += @ROWS, p += @ROWS * @DOWN * pitch, to += @ROWS * columns) {
      @SEVERAL
    }
    for (; y < rows; ++y, p += @DOWN * pitch, to += columns) {
      @ONE
    }
  }
  return 0;
}
