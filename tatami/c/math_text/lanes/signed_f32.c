/* needs: f32x4 i32x4 f64x4 */
/* What is not negative, rounded, with the sign of `like`. */
static inline f32x4 t_signed_f32(f64x4 x, f32x4 like) {
  return (f32x4)((i32x4)__builtin_convertvector(x, f32x4) ^ ((i32x4)like & (-0x7fffffff - 1)));
}
