/* needs: f32x@W u32x@W */
static inline f32x@W t_widen_bf16x@W(u32x@W h) { return (f32x@W)(h << 16); }
