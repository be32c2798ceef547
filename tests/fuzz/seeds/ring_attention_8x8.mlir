module @jit_f attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.spmd_output_sharding = "{{devices=[8,8,1]<=[64]}, {devices=[8,8,1]<=[64]}, {devices=[8,8,1]<=[64]}}", mhlo.spmd_parameters_shardings = ["{devices=[8,8,1]<=[64]}", "{devices=[8,8,1]<=[64]}", "{devices=[8,8,1]<=[64]}"], mhlo.use_auto_spmd_partitioning = false} {
  func.func private @region_1.0(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @region_3.5(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @region_4.6(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @region_0.2_spmd(%arg0: tensor<i32>, %arg1: tensor<8x128x64xbf16>, %arg2: tensor<8x128x64xbf16>, %arg3: tensor<8x128x64xf32>, %arg4: tensor<8x128xf32>, %arg5: tensor<8x8x128x64xbf16>, %arg6: tensor<8x8x128x128xf32>, %arg7: tensor<8x8x128x64xf32>, %arg8: tensor<8x128x64xbf16>) -> (tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xf32>, tensor<8x128xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xbf16>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c : tensor<i32>
    %1 = "stablehlo.collective_permute"(%arg1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
    %2 = "stablehlo.collective_permute"(%arg2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
    %3 = stablehlo.dot_general %arg8, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<8x128x64xbf16>, tensor<8x128x64xbf16>) -> tensor<8x128x128xbf16>
    %4 = stablehlo.convert %3 : (tensor<8x128x128xbf16>) -> tensor<8x128x128xf32>
    %cst = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x128x128xf32>
    %6 = stablehlo.multiply %4, %5 : tensor<8x128x128xf32>
    %7 = stablehlo.exponential %6 : tensor<8x128x128xf32>
    %8 = stablehlo.convert %arg2 : (tensor<8x128x64xbf16>) -> tensor<8x128x64xf32>
    %9 = stablehlo.dot_general %7, %8, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xf32>, tensor<8x128x64xf32>) -> tensor<8x128x64xf32>
    %10 = stablehlo.add %arg3, %9 : tensor<8x128x64xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%7 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<8x128x128xf32>, tensor<f32>) -> tensor<8x128xf32>
    %12 = stablehlo.add %arg4, %11 : tensor<8x128xf32>
    %13 = stablehlo.reshape %arg1 : (tensor<8x128x64xbf16>) -> tensor<1x8x128x64xbf16>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %14 = stablehlo.dynamic_update_slice %arg5, %13, %arg0, %c_1, %c_1, %c_1 : (tensor<8x8x128x64xbf16>, tensor<1x8x128x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x8x128x64xbf16>
    %15 = stablehlo.reshape %7 : (tensor<8x128x128xf32>) -> tensor<1x8x128x128xf32>
    %16 = stablehlo.dynamic_update_slice %arg6, %15, %arg0, %c_1, %c_1, %c_1 : (tensor<8x8x128x128xf32>, tensor<1x8x128x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x8x128x128xf32>
    %17 = stablehlo.reshape %8 : (tensor<8x128x64xf32>) -> tensor<1x8x128x64xf32>
    %18 = stablehlo.dynamic_update_slice %arg7, %17, %arg0, %c_1, %c_1, %c_1 : (tensor<8x8x128x64xf32>, tensor<1x8x128x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x8x128x64xf32>
    return %0, %1, %2, %10, %12, %14, %16, %18, %arg8 : tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xf32>, tensor<8x128xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xbf16>
  }
  func.func private @region_2.3_spmd(%arg0: tensor<i32>, %arg1: tensor<8x128x64xbf16>, %arg2: tensor<8x128x64xbf16>, %arg3: tensor<8x128x64xf32>, %arg4: tensor<8x128xf32>, %arg5: tensor<8x8x128x64xbf16>, %arg6: tensor<8x8x128x128xf32>, %arg7: tensor<8x8x128x64xf32>, %arg8: tensor<8x128x64xbf16>) -> tensor<i1> {
    %c = stablehlo.constant dense<8> : tensor<i32>
    %0 = stablehlo.compare LT, %arg0, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  func.func private @xla.sdy.inlinable_manual_computation_body.4_spmd(%arg0: tensor<8x128x64xbf16>, %arg1: tensor<8x128x64xbf16>, %arg2: tensor<8x128x64xbf16>) -> (tensor<1xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x1xf32>, tensor<8x128x64xf32>, tensor<8x128x1xf32>) {
    %cst = stablehlo.constant dense<0.00999999977> : tensor<1xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x128x64xf32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x128xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %2 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<bf16>) -> tensor<8x8x128x64xbf16>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x8x128x128xf32>
    %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x8x128x64xf32>
    %5 = mhlo.copy %arg0 : tensor<8x128x64xbf16>
    %6:9 = stablehlo.while(%iterArg = %c, %iterArg_3 = %arg1, %iterArg_4 = %arg2, %iterArg_5 = %0, %iterArg_6 = %1, %iterArg_7 = %2, %iterArg_8 = %3, %iterArg_9 = %4, %iterArg_10 = %5) : tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xf32>, tensor<8x128xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xbf16>
    cond {
      %c_11 = stablehlo.constant dense<8> : tensor<i32>
      %11 = stablehlo.compare LT, %iterArg, %c_11 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %11 : tensor<i1>
    } do {
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %11 = stablehlo.add %iterArg, %c_11 : tensor<i32>
      %12 = "stablehlo.collective_permute"(%iterArg_3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
      %13 = "stablehlo.collective_permute"(%iterArg_4) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
      %14 = stablehlo.dot_general %iterArg_10, %iterArg_3, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<8x128x64xbf16>, tensor<8x128x64xbf16>) -> tensor<8x128x128xbf16>
      %15 = stablehlo.convert %14 : (tensor<8x128x128xbf16>) -> tensor<8x128x128xf32>
      %cst_12 = stablehlo.constant dense<0.00999999977> : tensor<f32>
      %16 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<8x128x128xf32>
      %17 = stablehlo.multiply %15, %16 : tensor<8x128x128xf32>
      %18 = stablehlo.exponential %17 : tensor<8x128x128xf32>
      %19 = stablehlo.convert %iterArg_4 : (tensor<8x128x64xbf16>) -> tensor<8x128x64xf32>
      %20 = stablehlo.dot_general %18, %19, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xf32>, tensor<8x128x64xf32>) -> tensor<8x128x64xf32>
      %21 = stablehlo.add %iterArg_5, %20 : tensor<8x128x64xf32>
      %cst_13 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %22 = stablehlo.reduce(%18 init: %cst_13) applies stablehlo.add across dimensions = [2] : (tensor<8x128x128xf32>, tensor<f32>) -> tensor<8x128xf32>
      %23 = stablehlo.add %iterArg_6, %22 : tensor<8x128xf32>
      %24 = stablehlo.reshape %iterArg_3 : (tensor<8x128x64xbf16>) -> tensor<1x8x128x64xbf16>
      %c_14 = stablehlo.constant dense<0> : tensor<i32>
      %25 = stablehlo.dynamic_update_slice %iterArg_7, %24, %iterArg, %c_14, %c_14, %c_14 : (tensor<8x8x128x64xbf16>, tensor<1x8x128x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x8x128x64xbf16>
      %26 = stablehlo.reshape %18 : (tensor<8x128x128xf32>) -> tensor<1x8x128x128xf32>
      %27 = stablehlo.dynamic_update_slice %iterArg_8, %26, %iterArg, %c_14, %c_14, %c_14 : (tensor<8x8x128x128xf32>, tensor<1x8x128x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x8x128x128xf32>
      %28 = stablehlo.reshape %19 : (tensor<8x128x64xf32>) -> tensor<1x8x128x64xf32>
      %29 = stablehlo.dynamic_update_slice %iterArg_9, %28, %iterArg, %c_14, %c_14, %c_14 : (tensor<8x8x128x64xf32>, tensor<1x8x128x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<8x8x128x64xf32>
      stablehlo.return %11, %12, %13, %21, %23, %25, %27, %29, %iterArg_10 : tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xf32>, tensor<8x128xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xbf16>
    }
    %7 = stablehlo.reshape %6#4 : (tensor<8x128xf32>) -> tensor<8x128x1xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<8x128x1xf32>
    %9 = stablehlo.multiply %7, %7 : tensor<8x128x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<8x128x1xf32>
    return %cst, %6#5, %6#6, %6#7, %7, %6#3, %10 : tensor<1xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x1xf32>, tensor<8x128x64xf32>, tensor<8x128x1xf32>
  }
  func.func private @region_5.7_spmd(%arg0: tensor<i32>, %arg1: tensor<8x128x64xbf16>, %arg2: tensor<8x128x64xbf16>, %arg3: tensor<8x128x64xbf16>, %arg4: tensor<8x128xf32>, %arg5: tensor<8x8x128x64xf32>, %arg6: tensor<8x128x64xf32>, %arg7: tensor<8x8x128x128xf32>, %arg8: tensor<f32>, %arg9: tensor<8x8x128x64xbf16>, %arg10: tensor<8x128x64xbf16>) -> (tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xf32>, tensor<8x8x128x128xf32>, tensor<f32>, tensor<8x8x128x64xbf16>, tensor<8x128x64xbf16>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %arg4, dims = [0, 1] : (tensor<8x128xf32>) -> tensor<8x128x128xf32>
    %c_0 = stablehlo.constant dense<8> : tensor<i32>
    %2 = stablehlo.subtract %c_0, %arg0 : tensor<i32>
    %3 = stablehlo.subtract %2, %c : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %4 = stablehlo.dynamic_slice %arg5, %3, %c_1, %c_1, %c_1, sizes = [1, 8, 128, 64] : (tensor<8x8x128x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x128x64xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x8x128x64xf32>) -> tensor<8x128x64xf32>
    %6 = stablehlo.dot_general %arg6, %5, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<8x128x64xf32>, tensor<8x128x64xf32>) -> tensor<8x128x128xf32>
    %7 = stablehlo.add %1, %6 : tensor<8x128x128xf32>
    %8 = stablehlo.dynamic_slice %arg7, %3, %c_1, %c_1, %c_1, sizes = [1, 8, 128, 128] : (tensor<8x8x128x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x128x128xf32>
    %9 = stablehlo.reshape %8 : (tensor<1x8x128x128xf32>) -> tensor<8x128x128xf32>
    %10 = stablehlo.multiply %7, %9 : tensor<8x128x128xf32>
    %11 = stablehlo.broadcast_in_dim %arg8, dims = [] : (tensor<f32>) -> tensor<8x128x128xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<8x128x128xf32>
    %13 = stablehlo.convert %12 : (tensor<8x128x128xf32>) -> tensor<8x128x128xbf16>
    %14 = stablehlo.dynamic_slice %arg9, %3, %c_1, %c_1, %c_1, sizes = [1, 8, 128, 64] : (tensor<8x8x128x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x128x64xbf16>
    %15 = stablehlo.reshape %14 : (tensor<1x8x128x64xbf16>) -> tensor<8x128x64xbf16>
    %16 = stablehlo.dot_general %13, %15, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xbf16>, tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
    %17 = stablehlo.add %arg1, %16 : tensor<8x128x64xbf16>
    %18 = "stablehlo.collective_permute"(%arg2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
    %19 = stablehlo.dot_general %13, %arg10, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xbf16>, tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
    %20 = stablehlo.add %18, %19 : tensor<8x128x64xbf16>
    %21 = "stablehlo.collective_permute"(%arg3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
    %22 = stablehlo.dot_general %arg6, %9, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x64xf32>, tensor<8x128x128xf32>) -> tensor<8x64x128xf32>
    %23 = stablehlo.transpose %22, dims = [0, 2, 1] {result_layout = dense<[1, 2, 0]> : tensor<3xindex>, xla_shape = "f32[8,128,64]{1,2,0}"} : (tensor<8x64x128xf32>) -> tensor<8x128x64xf32>
    %24 = stablehlo.convert %23 {result_layout = dense<[1, 2, 0]> : tensor<3xindex>, xla_shape = "bf16[8,128,64]{1,2,0}"} : (tensor<8x128x64xf32>) -> tensor<8x128x64xbf16>
    %25 = stablehlo.add %21, %24 : tensor<8x128x64xbf16>
    return %0, %17, %20, %25, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10 : tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xf32>, tensor<8x8x128x128xf32>, tensor<f32>, tensor<8x8x128x64xbf16>, tensor<8x128x64xbf16>
  }
  func.func private @region_6.8_spmd(%arg0: tensor<i32>, %arg1: tensor<8x128x64xbf16>, %arg2: tensor<8x128x64xbf16>, %arg3: tensor<8x128x64xbf16>, %arg4: tensor<8x128xf32>, %arg5: tensor<8x8x128x64xf32>, %arg6: tensor<8x128x64xf32>, %arg7: tensor<8x8x128x128xf32>, %arg8: tensor<f32>, %arg9: tensor<8x8x128x64xbf16>, %arg10: tensor<8x128x64xbf16>) -> tensor<i1> {
    %c = stablehlo.constant dense<8> : tensor<i32>
    %0 = stablehlo.compare LT, %arg0, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  func.func private @xla.sdy.inlinable_manual_computation_body_0.9_spmd(%arg0: tensor<8x128x64xbf16>, %arg1: tensor<8x128x64xbf16>, %arg2: tensor<1xf32>, %arg3: tensor<8x8x128x64xbf16>, %arg4: tensor<8x8x128x128xf32>, %arg5: tensor<8x8x128x64xf32>, %arg6: tensor<8x128x1xf32>, %arg7: tensor<8x128x64xf32>, %arg8: tensor<8x128x1xf32>) -> (tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<8x128x64xbf16>
    %1 = stablehlo.convert %arg0 : (tensor<8x128x64xbf16>) -> tensor<8x128x64xf32>
    %2 = stablehlo.broadcast_in_dim %arg8, dims = [0, 1, 2] : (tensor<8x128x1xf32>) -> tensor<8x128x1xf32>
    %3 = stablehlo.reshape %2 : (tensor<8x128x1xf32>) -> tensor<8x128xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<8x128xf32>) -> tensor<8x128x64xf32>
    %5 = stablehlo.multiply %1, %4 : tensor<8x128x64xf32>
    %6 = stablehlo.multiply %5, %arg7 : tensor<8x128x64xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<8x128x64xf32>, tensor<f32>) -> tensor<8x128xf32>
    %8 = stablehlo.reshape %7 : (tensor<8x128xf32>) -> tensor<8x128x1xf32>
    %9 = stablehlo.negate %8 : tensor<8x128x1xf32>
    %10 = stablehlo.reduce(%9 init: %cst_0) applies stablehlo.add across dimensions = [2] : (tensor<8x128x1xf32>, tensor<f32>) -> tensor<8x128xf32>
    %11 = mhlo.copy %arg5 : tensor<8x8x128x64xf32>
    %12 = stablehlo.broadcast_in_dim %arg6, dims = [0, 1, 2] : (tensor<8x128x1xf32>) -> tensor<8x128x1xf32>
    %13 = stablehlo.reshape %12 : (tensor<8x128x1xf32>) -> tensor<8x128xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1] : (tensor<8x128xf32>) -> tensor<8x128x64xf32>
    %15 = stablehlo.divide %1, %14 : tensor<8x128x64xf32>
    %16 = mhlo.copy %arg4 : tensor<8x8x128x128xf32>
    %17 = stablehlo.reshape %arg2 : (tensor<1xf32>) -> tensor<f32>
    %18 = mhlo.copy %arg3 : tensor<8x8x128x64xbf16>
    %19 = mhlo.copy %arg1 : tensor<8x128x64xbf16>
    %20:11 = stablehlo.while(%iterArg = %c, %iterArg_1 = %0, %iterArg_2 = %0, %iterArg_3 = %0, %iterArg_4 = %10, %iterArg_5 = %11, %iterArg_6 = %15, %iterArg_7 = %16, %iterArg_8 = %17, %iterArg_9 = %18, %iterArg_10 = %19) : tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xf32>, tensor<8x8x128x128xf32>, tensor<f32>, tensor<8x8x128x64xbf16>, tensor<8x128x64xbf16>
    cond {
      %c_11 = stablehlo.constant dense<8> : tensor<i32>
      %21 = stablehlo.compare LT, %iterArg, %c_11 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %21 : tensor<i1>
    } do {
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %21 = stablehlo.add %iterArg, %c_11 : tensor<i32>
      %22 = stablehlo.broadcast_in_dim %iterArg_4, dims = [0, 1] : (tensor<8x128xf32>) -> tensor<8x128x128xf32>
      %c_12 = stablehlo.constant dense<8> : tensor<i32>
      %23 = stablehlo.subtract %c_12, %iterArg : tensor<i32>
      %24 = stablehlo.subtract %23, %c_11 : tensor<i32>
      %c_13 = stablehlo.constant dense<0> : tensor<i32>
      %25 = stablehlo.dynamic_slice %iterArg_5, %24, %c_13, %c_13, %c_13, sizes = [1, 8, 128, 64] : (tensor<8x8x128x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x128x64xf32>
      %26 = stablehlo.reshape %25 : (tensor<1x8x128x64xf32>) -> tensor<8x128x64xf32>
      %27 = stablehlo.dot_general %iterArg_6, %26, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<8x128x64xf32>, tensor<8x128x64xf32>) -> tensor<8x128x128xf32>
      %28 = stablehlo.add %22, %27 : tensor<8x128x128xf32>
      %29 = stablehlo.dynamic_slice %iterArg_7, %24, %c_13, %c_13, %c_13, sizes = [1, 8, 128, 128] : (tensor<8x8x128x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x128x128xf32>
      %30 = stablehlo.reshape %29 : (tensor<1x8x128x128xf32>) -> tensor<8x128x128xf32>
      %31 = stablehlo.multiply %28, %30 : tensor<8x128x128xf32>
      %32 = stablehlo.broadcast_in_dim %iterArg_8, dims = [] : (tensor<f32>) -> tensor<8x128x128xf32>
      %33 = stablehlo.multiply %31, %32 : tensor<8x128x128xf32>
      %34 = stablehlo.convert %33 : (tensor<8x128x128xf32>) -> tensor<8x128x128xbf16>
      %35 = stablehlo.dynamic_slice %iterArg_9, %24, %c_13, %c_13, %c_13, sizes = [1, 8, 128, 64] : (tensor<8x8x128x64xbf16>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x128x64xbf16>
      %36 = stablehlo.reshape %35 : (tensor<1x8x128x64xbf16>) -> tensor<8x128x64xbf16>
      %37 = stablehlo.dot_general %34, %36, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xbf16>, tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
      %38 = stablehlo.add %iterArg_1, %37 : tensor<8x128x64xbf16>
      %39 = "stablehlo.collective_permute"(%iterArg_2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
      %40 = stablehlo.dot_general %34, %iterArg_10, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x128xbf16>, tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
      %41 = stablehlo.add %39, %40 : tensor<8x128x64xbf16>
      %42 = "stablehlo.collective_permute"(%iterArg_3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense_resource<__elided__> : tensor<64x2xi64>}> : (tensor<8x128x64xbf16>) -> tensor<8x128x64xbf16>
      %43 = stablehlo.dot_general %iterArg_6, %30, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x128x64xf32>, tensor<8x128x128xf32>) -> tensor<8x64x128xf32>
      %44 = stablehlo.transpose %43, dims = [0, 2, 1] {result_layout = dense<[1, 2, 0]> : tensor<3xindex>, xla_shape = "f32[8,128,64]{1,2,0}"} : (tensor<8x64x128xf32>) -> tensor<8x128x64xf32>
      %45 = stablehlo.convert %44 {result_layout = dense<[1, 2, 0]> : tensor<3xindex>, xla_shape = "bf16[8,128,64]{1,2,0}"} : (tensor<8x128x64xf32>) -> tensor<8x128x64xbf16>
      %46 = stablehlo.add %42, %45 : tensor<8x128x64xbf16>
      stablehlo.return %21, %38, %41, %46, %iterArg_4, %iterArg_5, %iterArg_6, %iterArg_7, %iterArg_8, %iterArg_9, %iterArg_10 : tensor<i32>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x64xf32>, tensor<8x8x128x128xf32>, tensor<f32>, tensor<8x8x128x64xbf16>, tensor<8x128x64xbf16>
    }
    return %20#1, %20#2, %20#3 : tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>
  }
  func.func @main(%arg0: tensor<8x128x64xbf16> {mhlo.sharding = "{devices=[8,8,1]<=[64]}"}, %arg1: tensor<8x128x64xbf16> {mhlo.sharding = "{devices=[8,8,1]<=[64]}"}, %arg2: tensor<8x128x64xbf16> {mhlo.sharding = "{devices=[8,8,1]<=[64]}"}) -> (tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x128x64xf32>
    %1 = stablehlo.convert %0 : (tensor<8x128x64xf32>) -> tensor<8x128x64xbf16>
    %2 = mhlo.copy %1 : tensor<8x128x64xbf16>
    %3 = mhlo.copy %2 : tensor<8x128x64xbf16>
    %4 = mhlo.copy %arg0 : tensor<8x128x64xbf16>
    %5 = mhlo.copy %4 : tensor<8x128x64xbf16>
    %6 = mhlo.copy %arg1 : tensor<8x128x64xbf16>
    %7 = mhlo.copy %6 : tensor<8x128x64xbf16>
    %8 = mhlo.copy %arg2 : tensor<8x128x64xbf16>
    %9 = mhlo.copy %8 : tensor<8x128x64xbf16>
    %10:7 = call @xla.sdy.inlinable_manual_computation_body.4_spmd(%5, %7, %9) : (tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>) -> (tensor<1xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x1xf32>, tensor<8x128x64xf32>, tensor<8x128x1xf32>)
    %11 = mhlo.copy %10#0 : tensor<1xf32>
    %12 = mhlo.copy %11 : tensor<1xf32>
    %13 = mhlo.copy %12 : tensor<1xf32>
    %14 = mhlo.copy %13 : tensor<1xf32>
    %15 = mhlo.copy %10#1 : tensor<8x8x128x64xbf16>
    %16 = mhlo.copy %15 : tensor<8x8x128x64xbf16>
    %17 = mhlo.copy %16 : tensor<8x8x128x64xbf16>
    %18 = mhlo.copy %17 : tensor<8x8x128x64xbf16>
    %19 = mhlo.copy %10#2 : tensor<8x8x128x128xf32>
    %20 = mhlo.copy %19 : tensor<8x8x128x128xf32>
    %21 = mhlo.copy %20 : tensor<8x8x128x128xf32>
    %22 = mhlo.copy %21 : tensor<8x8x128x128xf32>
    %23 = mhlo.copy %10#3 : tensor<8x8x128x64xf32>
    %24 = mhlo.copy %23 : tensor<8x8x128x64xf32>
    %25 = mhlo.copy %24 : tensor<8x8x128x64xf32>
    %26 = mhlo.copy %25 : tensor<8x8x128x64xf32>
    %27 = mhlo.copy %10#4 : tensor<8x128x1xf32>
    %28 = mhlo.copy %27 : tensor<8x128x1xf32>
    %29 = mhlo.copy %28 : tensor<8x128x1xf32>
    %30 = mhlo.copy %29 : tensor<8x128x1xf32>
    %31 = mhlo.copy %10#5 : tensor<8x128x64xf32>
    %32 = mhlo.copy %31 : tensor<8x128x64xf32>
    %33 = mhlo.copy %32 : tensor<8x128x64xf32>
    %34 = mhlo.copy %33 : tensor<8x128x64xf32>
    %35 = mhlo.copy %10#6 : tensor<8x128x1xf32>
    %36 = mhlo.copy %35 : tensor<8x128x1xf32>
    %37 = mhlo.copy %36 : tensor<8x128x1xf32>
    %38 = mhlo.copy %37 : tensor<8x128x1xf32>
    %39:3 = call @xla.sdy.inlinable_manual_computation_body_0.9_spmd(%3, %5, %14, %18, %22, %26, %30, %34, %38) : (tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<1xf32>, tensor<8x8x128x64xbf16>, tensor<8x8x128x128xf32>, tensor<8x8x128x64xf32>, tensor<8x128x1xf32>, tensor<8x128x64xf32>, tensor<8x128x1xf32>) -> (tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>)
    %40 = mhlo.copy %39#0 : tensor<8x128x64xbf16>
    %41 = mhlo.copy %40 : tensor<8x128x64xbf16>
    %42 = mhlo.copy %39#1 : tensor<8x128x64xbf16>
    %43 = mhlo.copy %42 : tensor<8x128x64xbf16>
    %44 = mhlo.copy %39#2 : tensor<8x128x64xbf16>
    %45 = mhlo.copy %44 : tensor<8x128x64xbf16>
    return %41, %43, %45 : tensor<8x128x64xbf16>, tensor<8x128x64xbf16>, tensor<8x128x64xbf16>
  }
}
