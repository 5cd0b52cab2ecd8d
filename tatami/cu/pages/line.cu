/* Stream-K: the line of the blocks of k of all tiles, and this unit's part of it; `piece(at)` sets what is computed from block
   `at` on, and returns its tile.
   @UNITS    blocks of threads, or clusters of them
   @CLUSTER  where a unit is a cluster, by how much its number is less than that of its blocks
*/
constexpr int UNITS = @UNITS;  // that share the blocks of all tiles evenly
const tt_i64 line = (tt_i64)tiles * BLOCKS, unit = tt_block_x()@CLUSTER;
const tt_i64 begin = unit * line / UNITS, end = (unit + 1) * line / UNITS;
int KB = 0;
auto piece = [&](tt_i64 at) {
  const int tile = (int)(at / BLOCKS), skipped = (int)(at % BLOCKS);
  KB = (int)tt_min_size(BLOCKS - skipped, end - at);
  k_first = (tt_i64)skipped * BK;
  split = unit - (((tt_i64)tile * BLOCKS + 1) * UNITS - 1) / line;  // after the tile's first unit
  return tile;
};
