/* needs: bits_bf16x@W widen_bf16x@W */
static inline f32x@W t_round_bf16x@W(f32x@W x) { return t_widen_bf16x@W(t_bits_bf16x@W(x)); }
