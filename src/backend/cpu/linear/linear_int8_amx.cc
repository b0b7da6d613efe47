// GEMM of packed weights with 8-bit inputs for AMX-INT8.
//
// Idea: a tile instruction multiplies a block of 32 inputs (kQ6K: half of one) exactly; its integers
// go through memory to the vectors, which scale and add them. Four steps are under way at a time, so
// that neither unit waits for the other. Up to 16 rows run through all panels without a stop; more
// rows take a panel's unpacked weights several times. The integers and the f32 operations are those
// of linear_int8_avx512vnni.cc: the results are the same bits.
//
// Cost of 6144 x 1024 in Q8_0 at 16 rows: 6.7 MB and 0.2 Gop. docs/performance.md has VNNI beside AMX.
// From 96 rows on weights are expanded to bf16 for linear_amx.cc, since scaling every block costs more.
#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear_kernel.h"
#include "backend/cpu/linear/quant_vec.h"
#include "backend/cpu/linear/tiles_amx.h"

namespace zipage::cpu {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kTileRows = 16;
constexpr int64_t kMostSteps = 24;  // whose weights, unpacked, stay in the first-level cache ...
constexpr int64_t kMostTiles = 8;   // ... for so many tiles of rows, as do the sums of those

// Four steps are under way: tiles 0-3 hold their products, which begin four steps before they are
// scaled and are stored two steps before. A step's inputs are in tile 4 or 5, its weights in 6
// or 7.
constexpr int kInFlight = 4;
constexpr int kStoresAhead = 2;

constexpr float kZeros[kPanel] = {};

int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <PanelFormat kFormat>
struct Steps {
  static constexpr int kPerBlock = num_parts(kFormat);
  static constexpr int kInputs = kQuantBlock / kPerBlock;
  static constexpr int kLines = kInputs / 4;
  static constexpr QuantLayout kLayout = quant_layout(kFormat);
  static constexpr int64_t kBytes = kLayout.group_bytes() / kLayout.num_blocks / kPerBlock;
};

// A panel's weights of one step.
template <PanelFormat kFormat>
struct StepWeights {
  const void* lines;   // [kLines][16 outputs][4 inputs], signed
  QuantScales scales;  // without c where dots have a sign
  __m512i unpacked[Steps<kFormat>::kLines];
};

template <PanelFormat kFormat, int kPart>
ZIPAGE_INLINE void unpack_step(const std::byte* group, int64_t block, StepWeights<kFormat>& to) {
  using S = Steps<kFormat>;
  const std::byte* integers = group + S::kLayout.scale_bytes() + block * S::kLayout.integer_bytes();
  const QuantScales scales = quant_scales<kFormat>(group, block, kPart, 0);
  to.scales.d = scales.d;
  if constexpr (!has_signed_dots(kFormat)) to.scales.c = scales.c;
  if constexpr (kFormat == PanelFormat::kQ8) {
    to.lines = integers;
  } else {
    to.lines = to.unpacked;
    ZIPAGE_UNROLL
    for (int j = 0; j < S::kLines; ++j) {
      __m512i q = quant_line<kFormat>(integers, kPart * S::kLines + j, 0).v;
      if constexpr (kFormat == PanelFormat::kQ6K) q = _mm512_sub_epi8(q, _mm512_set1_epi8(32));
      to.unpacked[j] = q;
    }
  }
}

// The same as a call: inlined where steps are under way only.
template <PanelFormat kFormat, int kPart>
__attribute__((noinline)) void call_unpack_step(const std::byte* group,
                                                int64_t block,
                                                StepWeights<kFormat>& to) {
  unpack_step<kFormat, kPart>(group, block, to);
}

// Steps [begin, end), whole blocks, of a panel.
template <PanelFormat kFormat>
void unpack(const std::byte* panel, int64_t begin, int64_t end, StepWeights<kFormat>* to) {
  using S = Steps<kFormat>;
  for (int64_t b = begin / S::kPerBlock; b < end / S::kPerBlock; ++b) {
    const std::byte* group = panel + b / S::kLayout.num_blocks * S::kLayout.group_bytes();
    call_unpack_step<kFormat, 0>(group, b % S::kLayout.num_blocks, *to++);
    if constexpr (S::kPerBlock == 2) {
      call_unpack_step<kFormat, 1>(group, b % S::kLayout.num_blocks, *to++);
    }
  }
}

// Tile i = the products of a step's inputs, rows x_stride blocks apart, and weights.
template <int i>
ZIPAGE_INLINE void multiply_tile(const int8_t* x, int64_t x_stride, const void* lines) {
  TILE_LOAD(4 + i % 2, x, x_stride * static_cast<int64_t>(sizeof(Int8Block)));
  TILE_LOAD(6 + i % 2, lines, kLineBytes);
  TILE_ZERO(i);
  TILE_MULTIPLY_ADD_INT8(i, 4 + i % 2, 6 + i % 2);
}

template <PanelFormat kFormat, int R>
ZIPAGE_INLINE void add_products(const int32_t (&dots)[R][kPanel],
                                const QuantScales& scales,
                                const Int8Block* in,
                                int64_t x_stride,
                                Vec (&sum)[R]) {
  ZIPAGE_UNROLL
  for (int r = 0; r < R; ++r) {
    const Vec dot = to_float({_mm512_load_si512(dots[r])});
    sum[r] = fma(scales.d, dot * splat(in->scale), sum[r]);
    if constexpr (!has_signed_dots(kFormat)) sum[r] = fma(scales.c, splat(in->scaled_sum), sum[r]);
    in += x_stride;
  }
}

// Asks for a step's weights.
template <PanelFormat kFormat>
ZIPAGE_INLINE void fetch_step(const std::byte* at) {
  for (int64_t byte = 0; byte < Steps<kFormat>::kBytes; byte += 64)
    __builtin_prefetch(at + byte, 0, 3);
}

// A tile of rows against steps of a panel.
struct TileTask {
  const Int8Block* x;  // at the first step
  int64_t x_stride;    // blocks
  int64_t num_steps;
  const float* start;  // sums to start from
  int64_t start_stride;
  float* out;
  int64_t out_stride;
  __mmask16 outputs;       // those to write
  const std::byte* fetch;  // what to fetch into the cache along the way, or null
};

// Functions of step s, which is i modulo kInFlight.
template <PanelFormat kFormat, int i>
ZIPAGE_INLINE void multiply_step(const TileTask& t, const StepWeights<kFormat>* w, int64_t s) {
  using S = Steps<kFormat>;
  if (s >= t.num_steps) return;
  const int8_t* x = t.x[s / S::kPerBlock].values + s % S::kPerBlock * S::kInputs;
  multiply_tile<i>(x, t.x_stride, w[s].lines);
}

template <int i>
ZIPAGE_INLINE void store_step(const TileTask& t, int32_t* dots, int64_t s) {
  if (s < t.num_steps) TILE_STORE(i, dots, kLineBytes);
}

// Adds step s to the sums and moves those behind it on.
template <PanelFormat kFormat, int R, int i>
ZIPAGE_INLINE void run_step(const TileTask& t,
                            const StepWeights<kFormat>* w,
                            int32_t (&dots)[kInFlight][R][kPanel],
                            int64_t s,
                            Vec (&sum)[R]) {
  using S = Steps<kFormat>;
  if (s >= t.num_steps) return;
  if (t.fetch != nullptr) fetch_step<kFormat>(t.fetch + s * S::kBytes);
  constexpr int kStored = (i + kStoresAhead) % kInFlight;
  store_step<kStored>(t, dots[kStored][0], s + kStoresAhead);
  multiply_step<kFormat, i>(t, w, s + kInFlight);
  add_products<kFormat, R>(dots[i], w[s].scales, t.x + s / S::kPerBlock, t.x_stride, sum);
}

// Sums stay in registers: no lambda may hold them across a tile instruction, which is an asm statement.
template <PanelFormat kFormat, int R>
void run_tile(const TileTask& t, const StepWeights<kFormat>* w) {
  alignas(64) int32_t dots[kInFlight][R][kPanel];
  Vec sum[R];
  ZIPAGE_UNROLL
  for (int r = 0; r < R; ++r) sum[r] = load(t.start + r * t.start_stride);
  multiply_step<kFormat, 0>(t, w, 0);
  multiply_step<kFormat, 1>(t, w, 1);
  multiply_step<kFormat, 2>(t, w, 2);
  multiply_step<kFormat, 3>(t, w, 3);
  store_step<0>(t, dots[0][0], 0);
  store_step<1>(t, dots[1][0], 1);
  for (int64_t s = 0; s < t.num_steps; s += kInFlight) {
    run_step<kFormat, R, 0>(t, w, dots, s, sum);
    run_step<kFormat, R, 1>(t, w, dots, s + 1, sum);
    run_step<kFormat, R, 2>(t, w, dots, s + 2, sum);
    run_step<kFormat, R, 3>(t, w, dots, s + 3, sum);
  }
  ZIPAGE_UNROLL
  for (int r = 0; r < R; ++r) {
    _mm512_mask_storeu_ps(t.out + r * t.out_stride, t.outputs, sum[r].v);
  }
}

// Tiles [first, first + count) of R rows each against panel p. The last tile of all reaches back
// into the one before.
template <PanelFormat kFormat, int R>
void run_panel(const LinearTask& task, int64_t p, int64_t first, int64_t count) {
  using S = Steps<kFormat>;
  StepWeights<kFormat> weights[kMostSteps];
  alignas(64) float sums[kMostTiles][R][kPanel];
  const std::byte* panel = task.panels + p * task.panel_bytes;
  const int64_t num_blocks = task.in_features / kQuantBlock;
  const int64_t num_steps = num_blocks * S::kPerBlock;
  // Chunks of about one length: each begins with a wait for its first products.
  const int64_t chunk = divide_up(num_blocks, divide_up(num_steps, kMostSteps)) * S::kPerBlock;
  const int64_t outputs = min(kPanel, task.num_outputs - p * kPanel);
  TileTask t = {};
  t.x_stride = num_blocks;
  for (int64_t begin = 0; begin < num_steps; begin += chunk) {
    const int64_t end = min(begin + chunk, num_steps);
    unpack<kFormat>(panel, begin, end, weights);
    t.num_steps = end - begin;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = min((first + i) * R, task.num_rows - R);
      t.x = reinterpret_cast<const Int8Block*>(task.x) + row * num_blocks + begin / S::kPerBlock;
      t.start = begin > 0 ? sums[i][0] : task.bias == nullptr ? kZeros : task.bias + p * kPanel;
      t.start_stride = begin > 0 ? kPanel : 0;
      const bool last = end == num_steps;
      t.out = last ? task.out + row * task.out_stride + p * kPanel : sums[i][0];
      t.out_stride = last ? task.out_stride : kPanel;
      t.outputs = static_cast<__mmask16>(last ? (1 << outputs) - 1 : 0xffff);
      // The next panel, while the first rows meet this one.
      t.fetch = first + i == 0 ? panel + task.panel_bytes + begin * S::kBytes : nullptr;
      run_tile<kFormat, R>(t, weights);
    }
  }
}

template <PanelFormat kFormat, int R>
void configure_tiles() {
  using S = Steps<kFormat>;
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = i < 6 ? R : S::kLines;
    config.row_bytes[i] = i == 4 || i == 5 ? S::kInputs : 64;
  }
  TILE_CONFIGURE(config);
}

template <PanelFormat kFormat, int R>
void run_tiles(const LinearTask& task) {
  configure_tiles<kFormat, R>();
  const int64_t num_tiles = divide_up(task.num_rows, R);
  for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
    for (int64_t first = 0; first < num_tiles; first += kMostTiles)
      run_panel<kFormat, R>(task, p, first, min(kMostTiles, num_tiles - first));
  }
  TILE_RELEASE();
}

// One tile of rows against all panels, as one run of steps: the tiles of a panel's first steps are
// under way while the sums of the one before end, and weights are unpacked where products leave
// the vectors time.
template <PanelFormat kFormat, int R>
class Run {
 public:
  explicit Run(const LinearTask& task)
      : task_(task),
        groups_(task.panels + task.panel_begin * task.panel_bytes),
        x_(reinterpret_cast<const Int8Block*>(task.x)),
        x_stride_(task.in_features / kQuantBlock),
        panel_steps_(x_stride_ * S::kPerBlock),
        num_steps_((task.panel_end - task.panel_begin) * panel_steps_),
        panel_(task.panel_begin) {}

  void run() {
    for (int64_t i = 0; i < min(kUnpackedAhead, num_steps_); i += S::kPerBlock) {
      const int64_t block = i / S::kPerBlock % S::kLayout.num_blocks;
      call_unpack_step<kFormat, 0>(group_at(i), block, weights_[i]);
      if constexpr (S::kPerBlock == 2) {
        call_unpack_step<kFormat, 1>(group_at(i), block, weights_[i + 1]);
      }
    }
    Vec sum[R];
    begin_panel(sum);
    multiply<0>(0);
    multiply<1>(1);
    multiply<2>(2);
    multiply<3>(3);
    store<0>(0);
    store<1>(1);
    for (int64_t i = 0; i < num_steps_; i += kInFlight) {
      step<0>(i, sum);
      step<1>(i + 1, sum);
      step<2>(i + 2, sum);
      step<3>(i + 3, sum);
    }
  }

 private:
  using S = Steps<kFormat>;
  static constexpr int64_t kUnpacked = 16;
  static constexpr int64_t kUnpackedAhead = 12;  // of the sums: eight ahead of the products
  static constexpr int64_t kFetchedAhead = 24;
  static_assert(kUnpackedAhead % kInFlight == 0 && kUnpackedAhead < kUnpacked);

  // Panels follow each other without a gap, so that a step's place does not depend on its panel's.
  const std::byte* group_at(int64_t step) const {
    return groups_ + step / (S::kPerBlock * S::kLayout.num_blocks) * S::kLayout.group_bytes();
  }
  template <int kPart>
  ZIPAGE_INLINE void unpack_at(int64_t step) {
    if (step >= num_steps_) return;
    unpack_step<kFormat, kPart % S::kPerBlock>(
        group_at(step), step / S::kPerBlock % S::kLayout.num_blocks, weights_[step % kUnpacked]);
  }
  // Functions of a step that is i modulo kInFlight.
  template <int i>
  ZIPAGE_INLINE void multiply(int64_t step) {
    if (step >= num_steps_) return;
    const int8_t* x = x_[next_x_ / S::kPerBlock].values + next_x_ % S::kPerBlock * S::kInputs;
    multiply_tile<i>(x, x_stride_, weights_[step % kUnpacked].lines);
    if (++next_x_ == panel_steps_) next_x_ = 0;
  }
  template <int i>
  ZIPAGE_INLINE void store(int64_t step) {
    if (step < num_steps_) TILE_STORE(i, dots_[i][0], kLineBytes);
  }
  template <int i>
  ZIPAGE_INLINE void step(int64_t step, Vec (&sum)[R]) {
    if (step >= num_steps_) return;
    fetch_step<kFormat>(groups_ + (step + kFetchedAhead) * S::kBytes);
    unpack_at<i>(step + kUnpackedAhead);
    store<(i + kStoresAhead) % kInFlight>(step + kStoresAhead);
    multiply<i>(step + kInFlight);
    add_products<kFormat, R>(dots_[i], weights_[step % kUnpacked].scales, x_ + at_ / S::kPerBlock,
                             x_stride_, sum);
    if (++at_ == panel_steps_) {
      end_panel(sum);
      begin_panel(sum);
    }
  }

  ZIPAGE_INLINE void begin_panel(Vec (&sum)[R]) {
    const float* start =
        task_.bias == nullptr || panel_ == task_.panel_end ? kZeros : task_.bias + panel_ * kPanel;
    const Vec value = load(start);
    ZIPAGE_UNROLL
    for (int r = 0; r < R; ++r) sum[r] = value;
  }
  ZIPAGE_INLINE void end_panel(const Vec (&sum)[R]) {
    const int64_t outputs = min(kPanel, task_.num_outputs - panel_ * kPanel);
    const auto mask = static_cast<__mmask16>((1 << outputs) - 1);
    float* out = task_.out + panel_ * kPanel;
    ZIPAGE_UNROLL
    for (int r = 0; r < R; ++r) {
      if (r < task_.num_rows) _mm512_mask_storeu_ps(out + r * task_.out_stride, mask, sum[r].v);
    }
    ++panel_;
    at_ = 0;
  }

  alignas(64) int32_t dots_[kInFlight][R][kPanel];
  StepWeights<kFormat> weights_[kUnpacked];
  const LinearTask& task_;
  const std::byte* const groups_;
  const Int8Block* const x_;  // with rows up to R, of which those past the task's may be anything
  const int64_t x_stride_;
  const int64_t panel_steps_;
  const int64_t num_steps_;
  int64_t panel_;
  int64_t at_ = 0;      // the step within its panel, of the sums
  int64_t next_x_ = 0;  // of the products
};

template <PanelFormat kFormat, int R>
void run_few(const LinearTask& task) {
  configure_tiles<kFormat, R>();
  Run<kFormat, R>(task).run();
  TILE_RELEASE();
}

// Takes tiles of the height that computes the fewest rows, and of those the highest.
template <PanelFormat kFormat>
void run_int8_amx(const LinearTask& task) {
  const int64_t rows = task.num_rows;
  const auto computed = [rows](int64_t height) {
    return rows < height ? INT64_MAX : divide_up(rows, height) * height;
  };
  if (rows <= 8) {
    run_few<kFormat, 8>(task);
  } else if (rows <= 12) {
    run_few<kFormat, 12>(task);
  } else if (rows <= kTileRows) {
    run_few<kFormat, 16>(task);
  } else if (computed(16) <= min(computed(12), computed(8))) {
    run_tiles<kFormat, 16>(task);
  } else if (computed(12) <= computed(8)) {
    run_tiles<kFormat, 12>(task);
  } else {
    run_tiles<kFormat, 8>(task);
  }
}

}  // namespace

LinearKernel linear_int8_amx(PanelFormat format) {
  static constexpr LinearKernel kOf[kNumQuantFormats] = {
      run_int8_amx<PanelFormat::kQ8>,    run_int8_amx<PanelFormat::kQ4>,
      run_int8_amx<PanelFormat::kQ4Min>, run_int8_amx<PanelFormat::kQ5>,
      run_int8_amx<PanelFormat::kQ5Min>, run_int8_amx<PanelFormat::kQ4K>,
      run_int8_amx<PanelFormat::kQ5K>,   run_int8_amx<PanelFormat::kQ6K>};
  return kOf[static_cast<int>(format) - static_cast<int>(PanelFormat::kQ8)];
}

}  // namespace zipage::cpu
