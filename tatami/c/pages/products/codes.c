/* c[rows][nr] = a * (codes - zero) * scale over k < depth: kc steps of k at a time, each summed from zero. At most @MR rows meet
   codes that are widened in registers. More rows meet codes that are widened once, into `wide_codes`.
   @ELEMENT   types: element.c
   @NIBBLE    `nibble`: nibble.c, where codes have 4 bits; empty for bytes
   @LOW       the function of each height of the only panel: codes_panel.c
   @TILES     the function of each height of a panel of wide codes: panel.c
   @NAME      the routine
   @B @NR     type that holds codes; columns
   @GROUP     steps of k in an element of B
   @LANES     elements of a vector
   @ZEROS     True if there are zero points
   @SCALES    True if there are scales
   @MR @LESS  rows of the highest panel; one less
   @LOWS      a call for each height of the only panel
   @CASES     a call for each height of a panel
   @REFUSED   fault for a height that the unit was not made for
   @STEP      elements of a from one panel to the next
*/
@ELEMENT
@NIBBLE

@LOW
@TILES

/* Steps k0 <= k < k1 of a sliver, as floats. */
static void widen(T *to, const @B *b, const T *scales, const int8_t *zeros, int64_t k0, int64_t k1, int64_t block) {
  for (int64_t k = k0; k < k1; ++k) {
    const int64_t q = k / block * @NR;
    for (int j = 0; j < @NR; j += @LANES) {
@if NIBBLE
      V x = nibble(*(const E *)(b + k / @GROUP * @NR + j), k % @GROUP);
@else
      V x = wide(b + k * @NR + j);
@end
@if ZEROS
      x -= wide(zeros + q + j);
@end
@if SCALES
      x *= *(const U *)(scales + q + j);
@end
      *(U *)(to + (k - k0) * @NR + j) = x;
    }
    (void)q;
  }
}

int @NAME(void *const *buffers, const int64_t *sizes) {
  const T *a = buffers[0];
  const @B *codes = buffers[1];
  T *c = buffers[2], *wide_codes = buffers[3];
  const T *scales = buffers[4];
  const int8_t *zeros = buffers[5];
  const int64_t rows = sizes[0], pitch = sizes[1], cp = sizes[2], depth = sizes[3], block = sizes[4], kc = sizes[5];
  if (rows == 0) return 0;
  if (rows <= @MR) {
    for (int64_t k0 = 0; k0 < depth; k0 += kc) {
      const int64_t k1 = depth - k0 < kc ? depth : k0 + kc, q = k0 / block * @NR;
      switch (rows) {
      @LOWS
      default: return @REFUSED;
      }
    }
    return 0;
  }
  const int64_t panels = (rows + @LESS) / @MR;
  for (int64_t k0 = 0; k0 < depth; k0 += kc) {
    const int64_t k1 = depth - k0 < kc ? depth : k0 + kc;
    const T *row = a;
    T *to = c;
    int64_t least = rows / panels, rest = rows - least * panels, over = 0;
    widen(wide_codes, codes, scales, zeros, k0, k1, block);
    for (int64_t p = 0; p < panels; ++p) {
      int64_t r = least;
      over += rest;
      if (over >= panels) over -= panels, ++r;
      switch (r) {
      @CASES
      default: return @REFUSED;
      }
      row += @STEP;
      to += r * cp;
    }
  }
  return 0;
}
