/* Remainder with the divisor's sign. */
static inline double t_mod_f64(double x, double y) {
  double r = fmod(x, y);
  if (y == 0.0) return r;
  if (r != 0.0) return (y < 0.0) != (r < 0.0) ? r + y : r;
  return r == r ? copysign(0.0, y) : r;
}
