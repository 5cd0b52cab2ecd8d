/* The launches and copies of a program.
   @NAME      run or setup
   @LAUNCHES  main_launch.cu, and copies
*/
static void @NAME(void** b) {
  @LAUNCHES
}
