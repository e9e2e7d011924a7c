// Lanes exchange their sums of four rows rather than add four times: lane 8 * r ends with row r. Part of main.
let far = (lane & 16u) != 0u;
let near = (lane & 8u) != 0u;
let even = select(sum0_0, sum2_0, far) + subgroupShuffleXor(select(sum2_0, sum0_0, far), 16u);
let odd = select(sum1_0, sum3_0, far) + subgroupShuffleXor(select(sum3_0, sum1_0, far), 16u);
var both = select(even, odd, near) + subgroupShuffleXor(select(odd, even, near), 8u);
#repeat s 3
both += subgroupShuffleXor(both, 4u >> $su);
#end
if ((lane & 7u) == 0u) {
    partial[place.subgroup * SUMS + (lane >> 3u)] = both;
}
