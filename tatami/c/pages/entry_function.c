/* One function of a program: some of its instructions, in order.
   @HEAD          storage and name
   @ARGUMENTS     b: boundary buffers, c: constants, s: sizes and threads, o: offsets in the arena
   @EQUATIONS     what a called program checks of its sizes first
   @INSTRUCTIONS  wave by wave
*/
@HEAD(@ARGUMENTS) {
    (void)b, (void)c, (void)s, (void)o, (void)arena, (void)pool;
    @EQUATIONS
    @INSTRUCTIONS
    return 0;
}
