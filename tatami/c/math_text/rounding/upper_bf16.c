/* needs: f32x@W u16x@W u32x@W */
/* A float that bf16 holds, as bf16: its upper half. */
static inline u16x@W t_upper_bf16x@W(f32x@W x) { return __builtin_convertvector((u32x@W)x >> 16, u16x@W); }
