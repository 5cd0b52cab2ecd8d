/* needs: logany_f32x@W */
/* Base-2 logarithm. */
static inline f32x@W t_log2_f32x@W(f32x@W x) { return t_logany_f32x@W(x, 1); }
