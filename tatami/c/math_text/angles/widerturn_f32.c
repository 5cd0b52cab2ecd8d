/* needs: f32x@W i32x@W f64x@W i64x@W blend_f64x@W blend_f32x@W any_i32x@W each_sinf_1_f32x@W each_cosf_1_f32x@W */
/* The sine of x + quarter pi/2, reduced by pi/2 in double precision; from 10^6 on the C library, lane by lane. Below 1 ulp. */
static inline f32x@W t_widerturn_f32x@W(f32x@W x, int quarter) {
  f64x@W d = __builtin_convertvector(x, f64x@W);
  f64x@W z = d * 0x1.45f306dc9c883p-1 + 0x1.8p+52;
  f64x@W n = z - 0x1.8p+52;
  f64x@W r = d - n * 0x1.921fb544p+0 - n * 0x1.0b4611a626331p-34;
  i64x@W q = (i64x@W)z + quarter;
  f64x@W s = r * r;
  f64x@W a = s * -0x1.ae64567f544e4p-26 + 0x1.71de3a556c734p-19;
  a = a * s - 0x1.a01a01a01a01ap-13;
  a = a * s + 0x1.1111111111111p-7;
  a = a * s - 0x1.5555555555555p-3;
  a = a * s * r + r;
  a = (f64x@W)((i64x@W)a | ((i64x@W)r & INT64_MIN)); /* of -0 too */
  f64x@W c = s * 0x1.1eed8eff8d898p-29 - 0x1.27e4fb7789f5cp-22;
  c = c * s + 0x1.a01a01a01a01ap-16;
  c = c * s - 0x1.6c16c16c16c17p-10;
  c = c * s + 0x1.5555555555555p-5;
  c = c * s - 0.5;
  c = c * s + 1.0;
  i32x@W odd = __builtin_convertvector((q & 1) != 0, i32x@W);
  f64x@W y = t_blend_f64x@W(odd, c, a);
  y = (f64x@W)((i64x@W)y ^ ((q & 2) << 62));
  f32x@W near = __builtin_convertvector(y, f32x@W);
  i32x@W far = ~((i32x@W)(x < 1.0e6f) & (i32x@W)(x > -1.0e6f));
  return t_any_i32x@W(far) ? t_blend_f32x@W(far, quarter ? t_each_cosf_1_f32x@W(x) : t_each_sinf_1_f32x@W(x), near) : near;
}
