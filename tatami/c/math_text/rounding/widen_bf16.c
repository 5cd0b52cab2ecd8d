/* needs: f32x@W u16x@W u32x@W */
static inline f32x@W t_widen_bf16x@W(u16x@W h) { return (f32x@W)(__builtin_convertvector(h, u32x@W) << 16); }
