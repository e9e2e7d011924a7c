// Reduces four rows' sums by lane exchange instead of four subgroup sums: of ACROSS lanes, lane
// r * ACROSS / 4 ends with row r. Part of main.
let far = (lane & (ACROSS / 2u)) != 0u;
let near = (lane & (ACROSS / 4u)) != 0u;
let even = select(sum0_0, sum2_0, far) + subgroupShuffleXor(select(sum2_0, sum0_0, far), ACROSS / 2u);
let odd = select(sum1_0, sum3_0, far) + subgroupShuffleXor(select(sum3_0, sum1_0, far), ACROSS / 2u);
var both = select(even, odd, near) + subgroupShuffleXor(select(odd, even, near), ACROSS / 4u);
#repeat s HALVINGS
both += subgroupShuffleXor(both, (ACROSS / 8u) >> $su);
#end
if (lane % (ACROSS / 4u) == 0u) {
    partial[place.subgroup * SUMS + lane / (ACROSS / 4u)] = both;
}
