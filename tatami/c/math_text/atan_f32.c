/* needs: f32x@W splat_f32x@W atan2_f32x@W */
/* Arc tangent. */
static inline f32x@W t_atan_f32x@W(f32x@W x) { return t_atan2_f32x@W(x, t_splat_f32x@W(1.0f)); }
