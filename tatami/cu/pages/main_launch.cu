/* One launch.
   @MAPS    tensor maps of its arguments
   @SHARED  bytes of shared memory, beyond what a kernel has unasked; else empty
   @KERNEL  the kernel
   @GRID @BLOCK @BYTES  blocks, threads and bytes of shared memory
   @ARGUMENTS  pointers, sizes, maps
*/
{
  @MAPS
@if SHARED
  must(cudaFuncSetAttribute(@KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, @SHARED), "@KERNEL");
@end
  @KERNEL<<<dim3(@GRID), dim3(@BLOCK), @BYTES>>>(@ARGUMENTS);
  must(cudaGetLastError(), "@KERNEL");
}
