/* A program of many instructions, as a function that calls its parts: compilers take more than linear time over one long function.
   @NAME       name of the function
   @ARGUMENTS  parameters, those of each part
   @EQUATIONS  what a called program checks of its sizes first
   @CALLS      the parts, in order
*/
static int64_t @NAME(@ARGUMENTS) {
    @EQUATIONS
    int64_t f;
    @CALLS
    return 0;
}
