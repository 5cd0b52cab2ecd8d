/* wide(p): a vector of bf16 from p on, as floats, whose upper halves they are. The instruction that converts while it loads is
   written as such, since gcc takes the vector apart.
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
  I x;
  __asm__("vpmovzxwd %1, %0" : "=@REGISTER"(x) : "m"(*(const N *)p));
#else
@end
  I x = __builtin_convertvector(*(const N *)p, I);
@if HAS
#endif
@end
  return (V)(x << 16);
}
