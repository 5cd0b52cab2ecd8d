/* The routine of a custom kernel: the user's body as a function of its own, and the wrapper that kernels call. Under a sanitizer
   each tensor is copied into a block of exactly its size, so that one element too far is seen wherever the tensor lies.
   @PREAMBLE    the user's declarations
   @PARAMETERS  tensors and sizes of the body
   @UNUSED      a use of each, since a body may leave some out
   @COUNTERS    loop variables that the body may use
   @FILE @TEXT  the user's body; errors name its own lines, as of a file of this name
   @NAME        the routine
   @PORTS       tensors, at least 1
   @COPIES @EXACT @BACKS  under a sanitizer: the copies, the body's arguments, results copied back
   @PLAIN       the body's arguments
*/
/* custom kernel */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
@PREAMBLE

#ifdef TATAMI_SANITIZE
void __asan_set_error_report_callback(void (*)(const char*));
static volatile int tatami_reported; /* stays: a place is reported once */
static void tatami_report(const char* text) { (void)text; tatami_reported = 1; }
#endif
static void tatami_body(@PARAMETERS) {
  @UNUSED
  @COUNTERS
  {
#line 1 "@FILE"
@TEXT

#line 1 "wrapper"
  }
}
int @NAME(void* const* buffers, const int64_t* integers) {
  (void)buffers; (void)integers;
#ifdef TATAMI_SANITIZE
  void* exact[@PORTS];
  size_t bytes[@PORTS];
  @COPIES
  __asan_set_error_report_callback(tatami_report);
  tatami_body(@EXACT);
  @BACKS
  return tatami_reported ? 6 : 0;
#else
  tatami_body(@PLAIN);
  return 0;
#endif
}
