// Skeleton of the row reductions (softmax, norm_rms, norm_layer): up to two reductions of row r, then a
// store of each element. The importer declares WG, Params (rows, cols, x_offset, x_stride, y_offset), x, y
// and
//   PASSES: 1 or 2 reductions; FIRST: the value that the first one starts with;
//   first(value, v): v folded into it; first_total(value, place): the row's result a;
//   second(v, a): the summand of the second; second_total(value, place): the row's result b;
//   operands(c): what output needs of column c; output(v, operands, a, b): the element of y.
// Work split: one workgroup per row, threads over columns with eight loads in flight.
// Why: later passes hit the cache, and rows of any length need no workgroup memory.
#import block

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    place: Place,
) {
    let row = wid.y * grid.x + wid.x;
    if (row >= params.rows) {
        return;
    }
    let x_row = params.x_offset + row * params.x_stride;
    let y_row = params.y_offset + row * params.cols;
    var value = FIRST;
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = c + $ju * WG;
        let x$j = x[x_row + min(c$j, params.cols - 1u)];
#end
#repeat j 8
        value = select(value, first(value, x$j), c$j < params.cols);
#end
    }
    let a = first_total(value, place);
    var b = 0.0;
    if (PASSES == 2u) {
        var sum = 0.0;
        for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
            let c$j = c + $ju * WG;
            let x$j = x[x_row + min(c$j, params.cols - 1u)];
#end
#repeat j 8
            sum += select(0.0, second(x$j, a), c$j < params.cols);
#end
        }
        b = second_total(sum, place);
    }
    for (var c = place.lid; c < params.cols; c += 8u * WG) {
#repeat j 8
        let c$j = c + $ju * WG;
        let x$j = x[x_row + min(c$j, params.cols - 1u)];
        let operands$j = operands(min(c$j, params.cols - 1u));
#end
#repeat j 8
        if (c$j < params.cols) {
            y[y_row + c$j] = output(x$j, operands$j, a, b);
        }
#end
    }
}
