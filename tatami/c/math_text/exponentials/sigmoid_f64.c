static inline double t_sigmoid_f64(double x) {
  double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
