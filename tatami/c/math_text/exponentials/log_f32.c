/* needs: logany_f32x@W */
/* Natural logarithm. */
static inline f32x@W t_log_f32x@W(f32x@W x) { return t_logany_f32x@W(x, 0); }
