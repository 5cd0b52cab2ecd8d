/* wide(p): a vector of fp16 from p on, as floats. The instruction that converts while it loads is written as such; without it
   exponent and fraction are shifted to their places in a float, and a product with 2^112 sets the bias right, that of numbers
   below the normal ones too. The exponent of infinity and NaN is set by itself.
   @LANES     elements of a vector
   @WIDE      bytes of a vector of 32-bit integers
   @HAS       macro of the instruction set that has the instruction; empty where none has
   @REGISTER  constraint of its result
*/
typedef uint16_t B;
typedef B N __attribute__((vector_size(2 * @LANES), aligned(2), may_alias));
typedef int32_t I __attribute__((vector_size(@WIDE)));
static inline __attribute__((always_inline)) V wide(const B *p) {
@if HAS
#if defined(@HAS)
  V x;
  __asm__("vcvtph2ps %1, %0" : "=@REGISTER"(x) : "m"(*(const N *)p));
  return x;
#else
@end
  const I h = __builtin_convertvector(*(const N *)p, I);
  const V x = (V)((h & 0x7fff) << 13) * 0x1p112f;
  return (V)((I)x | (h & 0x8000) << 16 | (((h & 0x7c00) == 0x7c00) & 0x7f800000));
@if HAS
#endif
@end
}
