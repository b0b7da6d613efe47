#include "backend/cpu/linear/linear.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/linear/linear_plan.h"
#include "backend/cpu/linear/quant_panel.h"
#include "backend/cpu/ops.h"
#include "base/check.h"
#include "base/error.h"

namespace zipage::cpu {
namespace {

const PackedLinear& packed(const LinearWeight* weight) {
  const auto* linear = dynamic_cast<const PackedLinear*>(weight);
  ZIPAGE_CHECK(linear != nullptr);
  return *linear;
}

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// One output's weights, from its panel.
void unpack_row(const LinearSegment& segment, int64_t output, int64_t in_features, float* row) {
  const std::byte* panel = segment.panels.data() + output / kPanelOutputs * segment.panel_bytes;
  const int64_t n = output % kPanelOutputs;
  if (is_quant(segment.format)) {
    unpack_quant_row(segment.format, panel, in_features, n, row);
    return;
  }
  const auto* half = reinterpret_cast<const uint16_t*>(panel);
  const auto* full = reinterpret_cast<const float*>(panel);
  for (int64_t k = 0; k < in_features; ++k) {
    if (segment.format == PanelFormat::kF32) {
      row[k] = full[k * kPanelOutputs + n];
    } else if (segment.format == PanelFormat::kF16) {
      row[k] = f16_to_f32(half[k * kPanelOutputs + n]);
    } else {
      row[k] = bf16_to_f32(half[(k / 2 * kPanelOutputs + n) * 2 + k % 2]);
    }
  }
}

// How the work of one segment is cut. A piece is a run of panels against a run of rows.
struct Pieces {
  int64_t panels = 0;  // of a piece
  int64_t rows = 0;
  int64_t num_panel_pieces = 0;
  int64_t count = 0;
};

// Few enough pieces that each streams a long run of memory, enough that no thread waits long for
// another. Rows are cut only where there are too few panels to go round, and then so that a piece
// still uses each weight many times.
Pieces cut(int64_t num_panels, int64_t num_rows, int64_t num_threads) {
  constexpr int64_t kPanelsToStream = 4, kMostPiecesPerThread = 8, kRowsToReuse = 64, kRowStep = 32;
  Pieces pieces;
  pieces.panels = num_panels;
  pieces.rows = num_rows;
  if (num_threads > 1) {
    const int64_t least = num_rows >= kRowsToReuse ? 1 : kPanelsToStream;
    const int64_t per_thread =
        std::clamp<int64_t>(num_panels / num_threads / least, 1, kMostPiecesPerThread);
    const int64_t wanted = num_threads * per_thread;
    pieces.panels = (num_panels + wanted - 1) / wanted;
    const int64_t panel_pieces = (num_panels + pieces.panels - 1) / pieces.panels;
    const int64_t row_pieces = std::clamp<int64_t>(4 * num_threads / panel_pieces, 1,
                                                   std::max<int64_t>(1, num_rows / kRowsToReuse));
    if (row_pieces > 1) pieces.rows = round_up((num_rows + row_pieces - 1) / row_pieces, kRowStep);
  }
  pieces.num_panel_pieces = (num_panels + pieces.panels - 1) / pieces.panels;
  pieces.count = pieces.num_panel_pieces * ((num_rows + pieces.rows - 1) / pieces.rows);
  return pieces;
}

// Runs a task over packed panels: a few at a time become plain ones in `scratch`.
void run_expanded(const LinearPlan& plan, const LinearTask& task, std::byte* scratch) {
  const int64_t padded = round_up(task.in_features, kInputPadding);
  const int64_t wide_bytes = task.in_features * kPanelOutputs * 4;
  const int64_t plain_bytes = plan.round_panel == nullptr ? wide_bytes : padded * kPanelOutputs * 2;
  auto* wide = reinterpret_cast<float*>(scratch + kExpandedPanels * plain_bytes);
  for (int64_t p = task.panel_begin; p < task.panel_end; p += kExpandedPanels) {
    const int64_t panels = std::min(kExpandedPanels, task.panel_end - p);
    for (int64_t i = 0; i < panels; ++i) {
      const std::byte* packed_panel = task.panels + (p + i) * task.panel_bytes;
      std::byte* plain = scratch + i * plain_bytes;
      if (plan.round_panel == nullptr) {
        plan.expand(packed_panel, task.in_features, reinterpret_cast<float*>(plain));
      } else {
        plan.expand(packed_panel, task.in_features, wide);
        plan.round_panel(wide, task.in_features, padded, reinterpret_cast<uint16_t*>(plain));
      }
    }
    LinearTask part = task;
    part.panels = scratch;
    part.panel_bytes = plain_bytes;
    part.panel_begin = 0;
    part.panel_end = panels;
    part.num_outputs = task.num_outputs - p * kPanelOutputs;
    if (task.bias != nullptr) part.bias = task.bias + p * kPanelOutputs;
    part.out = task.out + p * kPanelOutputs;
    plan.kernel(part);
  }
}

// `scratch`: a thread's share lies at thread * share_bytes.
void run_segment(const LinearSegment& segment,
                 const LinearPlan& plan,
                 const LinearTask& whole,
                 std::byte* scratch,
                 int64_t share_bytes,
                 ThreadPool& pool) {
  const Pieces pieces = cut(segment.num_panels(), whole.num_rows, pool.num_threads());
  const auto run_piece = [&](int64_t piece, int thread) {
    const int64_t row = piece / pieces.num_panel_pieces * pieces.rows;
    LinearTask task = whole;
    task.panel_begin = piece % pieces.num_panel_pieces * pieces.panels;
    task.panel_end = std::min(task.panel_begin + pieces.panels, segment.num_panels());
    task.num_rows = std::min(pieces.rows, whole.num_rows - row);
    task.x = whole.x + row * whole.x_stride;
    task.out = whole.out + row * whole.out_stride;
    if (plan.expand == nullptr) {
      plan.kernel(task);
    } else {
      run_expanded(plan, task, scratch + thread * share_bytes);
    }
  };
  pool.for_each(pieces.count, run_piece);
}

// Rows as bf16, padded to whole tiles with zeros. Returns them as pairs.
const float* round_rows(const LinearPlan& plan,
                        const float* x,
                        int64_t rows,
                        int64_t in_features,
                        std::byte* to,
                        ThreadPool& pool) {
  const int64_t padded = round_up(in_features, kInputPadding);
  auto* rounded = reinterpret_cast<uint16_t*>(to);
  constexpr int64_t kElementsPerPiece = 1 << 14;  // a few microseconds
  pool.parallel_for(
      rows, std::max<int64_t>(1, kElementsPerPiece / padded), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          plan.round_inputs(x + r * in_features, in_features, padded, rounded + r * padded);
        }
      });
  const int64_t missing = round_up(rows, kRowPadding) - rows;
  std::memset(rounded + rows * padded, 0, static_cast<size_t>(missing * padded * 2));
  return reinterpret_cast<const float*>(to);
}

// Rows as 8-bit blocks.
const float* round_rows_int8(const LinearPlan& plan,
                             const float* x,
                             int64_t rows,
                             int64_t in_features,
                             std::byte* to,
                             ThreadPool& pool) {
  const int64_t num_blocks = in_features / kQuantBlock;
  auto* rounded = reinterpret_cast<Int8Block*>(to);
  constexpr int64_t kBlocksPerPiece = 256;  // a few microseconds
  pool.parallel_for(rows, std::max<int64_t>(1, kBlocksPerPiece / num_blocks),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r)
                        plan.round_int8(x + r * in_features, num_blocks, rounded + r * num_blocks);
                    });
  return reinterpret_cast<const float*>(to);
}

}  // namespace

void linear(const LinearArgs& args, CpuContext& context) {
  const PackedLinear& weight = packed(args.weight);
  if (args.dtype != DType::kF32 || args.out_dtype != DType::kF32) {
    fail_invalid("linear on a CPU: {} to {}, expected f32 to f32", to_string(args.dtype),
                 to_string(args.out_dtype));
  }
  const int64_t in_features = weight.in_features();
  const int64_t padded = round_up(in_features, kInputPadding);
  // Rounded inputs, then a share a thread for expanded panels. Its size does not follow from the
  // number of rows, so that a stream's scratch stops growing after the first step.
  const bool may_round = context.dtype == DType::kBF16 && context.isa >= Isa::kAvx2;
  const int64_t bf16_bytes = may_round ? kRoundedRows * padded * 2 : 0;
  const int64_t int8_bytes = may_round && weight.has_packed()
                                 ? round_up(kRoundedRows * (in_features / kQuantBlock) *
                                                static_cast<int64_t>(sizeof(Int8Block)),
                                            kAlignment)
                                 : 0;
  const int64_t rounded_bytes = bf16_bytes + int8_bytes;
  const int64_t share_bytes =
      weight.has_packed() ? (kExpandedPanels + 1) * padded * kPanelOutputs * 4 : 0;
  std::byte* scratch = context.scratch->reserve(
      static_cast<size_t>(rounded_bytes + share_bytes * context.pool->num_threads()));
  for (int64_t row = 0; row < args.num_tokens;) {
    int64_t rows = args.num_tokens - row;
    if (may_round) rows = std::min(rows, kRoundedRows);
    const float* x = static_cast<const float*>(args.x) + row * in_features;
    const float* rounded = nullptr;  // to bf16
    const float* int8 = nullptr;
    for (const LinearSegment& segment : weight.segments()) {
      const LinearPlan plan = plan_linear(segment.format, rows, context);
      const bool round = plan.inputs == InputForm::kBF16;
      if (round && rounded == nullptr) {
        rounded = round_rows(plan, x, rows, in_features, scratch, *context.pool);
      }
      if (plan.inputs == InputForm::kInt8 && int8 == nullptr) {
        int8 = round_rows_int8(plan, x, rows, in_features, scratch + bf16_bytes, *context.pool);
      }
      LinearTask task = {};
      task.panels = segment.panels.data();
      task.panel_bytes = segment.panel_bytes;
      task.num_outputs = segment.num_outputs;
      task.in_features = in_features;
      task.bias = weight.bias() == nullptr ? nullptr : weight.bias() + segment.first_output;
      task.x = x;
      task.x_stride = in_features;
      if (round) {
        task.x = rounded;
        task.x_stride = padded / 2;
      } else if (plan.inputs == InputForm::kInt8) {
        task.x = int8;
        task.x_stride =
            in_features / kQuantBlock * static_cast<int64_t>(sizeof(Int8Block) / sizeof(float));
      }
      task.num_rows = rows;
      task.out = static_cast<float*>(args.out) + row * weight.out_features() + segment.first_output;
      task.out_stride = weight.out_features();
      run_segment(segment, plan, task, scratch + rounded_bytes, share_bytes, *context.pool);
    }
    row += rows;
  }
}

void embed(const EmbedArgs& args, CpuContext& context) {
  const PackedLinear& table = packed(args.table);
  ZIPAGE_CHECK(args.dtype == DType::kF32);
  ZIPAGE_CHECK_EQ(args.hidden, table.in_features());
  context.pool->parallel_for(args.num_tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t id = args.ids[t];
      if (id < 0 && args.previous_tokens != nullptr)
        id = std::max(args.previous_tokens[-1 - id], 0);
      if (id < 0 || id >= table.out_features()) {
        fail_invalid("token id {}: expected 0 to {}", id, table.out_features() - 1);
      }
      auto segment = table.segments().begin();
      while (id >= segment->first_output + segment->num_outputs) ++segment;
      unpack_row(*segment, id - segment->first_output, args.hidden,
                 static_cast<float*>(args.out) + t * args.hidden);
    }
  });
}

}  // namespace zipage::cpu
