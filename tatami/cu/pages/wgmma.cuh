/* The wgmma instruction of one shape: N/2 accumulator operands written out, since PTX has no arrays.
   @TEMPLATE @NAME  parameters and arguments of the struct: type, columns, whether operands are transposed
   @COUNT           accumulators of a thread
   @A               operand a: a descriptor, or four registers
   @SCALE           operand that is 0 where the sums begin with this product
   @N @DEPTH @TYPE  columns, depth and operand type of the instruction
   @SUMS            operands of the accumulators, in lines of 16
   @OPERANDS        operands a and b
   @TRANSPOSED      operands that say what is transposed
   @OUTPUTS @INPUT @IMMEDIATES  constraints
*/
template <@TEMPLATE> struct tt_wgmma_@NAME {
  static TT_DEV void run(float (&d)[@COUNT], @A, tt_u64 b, int scale_d) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, @SCALE, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n@Nk@DEPTH.f32.@TYPE.@TYPE {"
        "@SUMS},\n\t@OPERANDS, p, 1, 1@TRANSPOSED;\n\t}"
        : @OUTPUTS
        : @INPUT, "l"(b), "r"(scale_d)@IMMEDIATES);
  }
};
