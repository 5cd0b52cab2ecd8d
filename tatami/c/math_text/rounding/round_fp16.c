/* needs: bits_fp16x@W widen_fp16x@W */
static inline f32x@W t_round_fp16x@W(f32x@W x) { return t_widen_fp16x@W(t_bits_fp16x@W(x)); }
