/* needs: f64x@W i64x@W */
/* `a` in lanes of -1, `b` in lanes of 0. */
static inline f64x@W t_choose_f64x@W(i64x@W m, f64x@W a, f64x@W b) { return (f64x@W)(((i64x@W)a & m) | ((i64x@W)b & ~m)); }
