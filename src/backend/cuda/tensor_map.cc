#include "backend/cuda/tensor_map.h"

#include "base/check.h"
#include "base/error.h"

namespace zipage {

namespace {

CUtensorMap encode(const CudaContext& context,
                   const void* data,
                   uint32_t rank,
                   const cuuint64_t* sizes,
                   const cuuint64_t* strides,
                   const cuuint32_t* box,
                   CUtensorMapSwizzle swizzle) {
  const auto encode_tiled =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(context.encode_tensor_map);
  ZIPAGE_CHECK(encode_tiled != nullptr);
  CUtensorMap map{};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult status =
      encode_tiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(data), sizes,
                   strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    fail(StatusCode::kInternal, "cuTensorMapEncodeTiled: error {} for sizes [{}, {}], box [{}, {}]",
         static_cast<int>(status), sizes[0], sizes[1], box[0], box[1]);
  }
  return map;
}

}  // namespace

CUtensorMap make_matrix_map(const CudaContext& context,
                            const void* data,
                            uint64_t rows,
                            uint64_t columns,
                            uint32_t box_rows) {
  const cuuint64_t sizes[2] = {columns, rows};
  const cuuint64_t strides[1] = {columns * 2};
  const cuuint32_t box[2] = {64, box_rows};
  return encode(context, data, 2, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

bool page_map_fits(const CudaContext& context, const PagedKvView& kv) {
  return context.is_hopper() && context.encode_tensor_map != nullptr &&
         int64_t{kv.num_blocks} * kv.num_kv_heads * kv.block_size < (int64_t{1} << 31);
}

CUtensorMap make_page_map(const CudaContext& context,
                          const PagedKvView& kv,
                          const void* data,
                          uint32_t chunk_columns,
                          uint32_t box_entries) {
  const auto entries = static_cast<uint64_t>(kv.num_blocks) *
                       static_cast<uint64_t>(kv.num_kv_heads) *
                       static_cast<uint64_t>(kv.block_size);
  const auto head_dim = static_cast<uint32_t>(kv.head_dim);
  const cuuint64_t sizes[3] = {chunk_columns, entries, head_dim / chunk_columns};
  const cuuint64_t strides[2] = {uint64_t{head_dim} * 2, uint64_t{chunk_columns} * 2};
  const cuuint32_t box[3] = {chunk_columns, box_entries, head_dim / chunk_columns};
  const CUtensorMapSwizzle swizzle = chunk_columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : chunk_columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                           : CU_TENSOR_MAP_SWIZZLE_32B;
  return encode(context, data, 3, sizes, strides, box, swizzle);
}

}  // namespace zipage
