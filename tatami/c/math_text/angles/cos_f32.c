/* needs: turn_f32x@W */
/* Below 2 ulp. */
static inline f32x@W t_cos_f32x@W(f32x@W x) { return t_turn_f32x@W(x, 1); }
