/* Remainder with the divisor's sign. */
static inline float t_mod_f32(float x, float y) {
  float r = fmodf(x, y);
  if (y == 0.0f) return r;
  if (r != 0.0f) return (y < 0.0f) != (r < 0.0f) ? r + y : r;
  return r == r ? copysignf(0.0f, y) : r;
}
