/* fp64 to fp32, an inexact result with its last bit set: a second rounding to 16 bits then equals a direct one. */
static inline float t_oddone_f32(double x) {
  union { float f; uint32_t u; } y = {(float)x};
  if (x != x || __builtin_isinf(y.f) || (double)y.f == x) return y.f;
  if (__builtin_fabs((double)y.f) > __builtin_fabs(x)) y.u -= 1;
  y.u |= 1u;
  return y.f;
}
