// Weighted L1 comparisons, all float32 and row-major: score[b, n] = −Σ_d |q[b, d] − w[b, d] c[n, d]|, B queries,
// N candidates, D features. Compiled by `native.py` with NVRTC, so nothing is included.
//
// Scores. A block owns a tile of BM queries × BN candidates, a thread TM × TN of it in registers. BK features of the
// tile's rows at a time are copied into shared memory (asynchronously, two buffers) and stored feature by feature, so
// that a thread fetches its operands of one feature as 16-byte vectors. Rows in shared memory are 4 floats longer than
// the tile: a warp copies 4 rows × 8 features into 32 different banks. A thread's rows and columns come in groups of 4,
// spread so that a warp's vectors are neighbours. Every score is one sum over ascending features, whatever the tile, so
// all kernels here agree on it bit for bit; only a split over D (grid z) changes the order of the sum. The parts of a
// split are added in a fixed order: through the shared memory of a cluster of blocks, or by `add_parts`.
//
// Gradients. A thread owns FT features (a warp: 32 FT neighbours) and TN candidates, whose values and gradients stay in
// registers while it walks over the block's share of the queries, MB at a time. The WARPS warps of a block share
// features and differ in candidates; their sums for queries and scales meet in shared memory.

__device__ __forceinline__ unsigned address(const void *shared) {
    unsigned result;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(result) : "l"(shared));
    return result;
}

// Begins to copy one float into shared memory, or zero. Four bytes at a time: no alignment of rows is asked for.
__device__ __forceinline__ void copy(unsigned to, const float *from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
}

__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ int cluster_size() {
    int result;
    asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(result));
    return result;
}

__device__ __forceinline__ int cluster_rank() {
    int result;
    asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(result));
    return result;
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}

__device__ __forceinline__ float4 cluster_read(unsigned shared, int rank) {
    float4 v;
    asm volatile(
        "{ .reg .u32 a; mapa.shared::cluster.u32 a, %4, %5; ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a]; }"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "r"(shared), "r"(rank)
        : "memory");
    return v;
}
#else
__device__ __forceinline__ int cluster_size() { return 1; }
__device__ __forceinline__ int cluster_rank() { return 0; }
__device__ __forceinline__ void cluster_sync() {}
__device__ __forceinline__ float4 cluster_read(unsigned, int) { return make_float4(0, 0, 0, 0); }
#endif

extern __shared__ float4 memory[];

// ---------------------------------------------------------------------------------------------------- tiles of scores

template <int BM, int BN, int TM, int TN, int BK, int UNROLL> struct Tile {
    static constexpr int ACROSS = BN / (8 * TN);  // warps side by side; a warp is 4 × 8 threads
    static constexpr int THREADS = BM / (4 * TM) * ACROSS * 32;
    static constexpr int LM = BM + 4, LN = BN + 4, BUFFER = BK * (2 * LM + LN);

    float acc[TM][TN];
    int row, col;  // of this thread's first element

    __device__ Tile() {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        // Lanes 1 apart share columns, lanes 2 apart rows: so each vector load takes half the passes.
        row = warp / ACROSS * 4 * TM + ((lane & 1) | (lane >> 4 << 1)) * 4;
        col = warp % ACROSS * 8 * TN + (lane >> 1 & 7) * 4;
    }

    __device__ int row_of(int i) const { return row + i / 4 * 16 + i % 4; }

    __device__ int col_of(int j) const { return col + j / 4 * 32 + j % 4; }

    // Copies BK features of ROWS rows; rows past the last are copies of it, features past `left` zero.
    template <int ROWS> __device__ static void stage(unsigned to, const float *from, int last, int D, int left) {
        const int k = threadIdx.x % 8, first = threadIdx.x / 8;
        to += (k * (ROWS + 4) + first) * 4;
#pragma unroll
        for (int r = 0; r < ROWS; r += THREADS / 8) {
            const float *row = from + k + (long long)min(first + r, last) * D;
#pragma unroll
            for (int kk = 0; kk < BK; kk += 8) copy(to + (kk * (ROWS + 4) + r) * 4, row + kk, k + kk < left);
        }
    }

    // acc = Σ |q − w c| over features `begin` to `end`.
    __device__ void sum(const float *q, const float *w, const float *c, int m0, int n0, int B, int N, int D, int begin,
                        int end) {
        q += (long long)m0 * D, w += (long long)m0 * D, c += (long long)n0 * D;
        unsigned to = address(memory);
        const auto stage_all = [&](int k0) {
            stage<BM>(to, q + k0, B - 1 - m0, D, end - k0);
            stage<BM>(to + BK * LM * 4, w + k0, B - 1 - m0, D, end - k0);
            stage<BN>(to + BK * LM * 8, c + k0, N - 1 - n0, D, end - k0);
        };
        const float *at = (const float *)memory;
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) acc[i][j] = 0.0f;
        stage_all(begin);
        int ahead = BUFFER;  // from the buffer that is read to the one that is filled
#pragma unroll 1
        for (int k0 = begin; k0 < end; k0 += BK) {
            copies_done();
            __syncthreads();
            to += ahead * 4;
            if (k0 + BK < end) stage_all(k0 + BK);
#pragma unroll UNROLL
            for (int k = 0; k < BK; k++) {
                float a[TM], b[TM], e[TN];
#pragma unroll
                for (int i = 0; i < TM; i += 4) {
                    *(float4 *)(a + i) = *(const float4 *)(at + k * LM + row_of(i));
                    *(float4 *)(b + i) = *(const float4 *)(at + (BK + k) * LM + row_of(i));
                }
#pragma unroll
                for (int j = 0; j < TN; j += 4)
                    *(float4 *)(e + j) = *(const float4 *)(at + 2 * BK * LM + k * LN + col_of(j));
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++)
                        acc[i][j] = __fadd_rn(acc[i][j], fabsf(__fmaf_rn(-b[i], e[j], a[i])));
            }
            at += ahead;
            ahead = -ahead;
        }
        copies_done();  // of an empty range
    }
};

// Part `block z` of the scores, of [parts, B, N]. Blocks of a cluster (along z) add their parts up and store one.
template <int BM, int BN, int TM, int TN, int BK, int UNROLL, int BLOCKS>
__global__ void __launch_bounds__(Tile<BM, BN, TM, TN, BK, UNROLL>::THREADS, BLOCKS)
    scores(const float *q, const float *w, const float *c, float *out, int B, int N, int D, int chunk) {
    typedef Tile<BM, BN, TM, TN, BK, UNROLL> T;
    T tile;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, begin = blockIdx.z * chunk;
    tile.sum(q, w, c, m0, n0, B, N, D, begin, min(begin + chunk, D));
    const int ranks = cluster_size(), rank = cluster_rank();
    out += (long long)(blockIdx.z / ranks) * B * N;
    const auto store = [&](int m, int n, float4 v) {
        float *to = out + (long long)m * N + n;
        if (m < B && n + 3 < N && N % 4 == 0) {
            *(float4 *)to = make_float4(-v.x, -v.y, -v.z, -v.w);
        } else if (m < B) {
            if (n < N) to[0] = -v.x;
            if (n + 1 < N) to[1] = -v.y;
            if (n + 2 < N) to[2] = -v.z;
            if (n + 3 < N) to[3] = -v.w;
        }
    };
    float *sums = (float *)memory;  // [BM, LN], over the buffers
    if (ranks > 1) __syncthreads();
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const float4 v = *(float4 *)(tile.acc[i] + j);
            if (ranks == 1) store(m0 + tile.row_of(i), n0 + tile.col_of(j), v);
            else *(float4 *)(sums + tile.row_of(i) * T::LN + tile.col_of(j)) = v;
        }
    if (ranks == 1) return;
    cluster_sync();
    for (int i = threadIdx.x; i < BM / ranks * (BN / 4); i += T::THREADS) {
        const int m = BM / ranks * rank + i / (BN / 4), n = i % (BN / 4) * 4;
        const unsigned at = address(sums + m * T::LN + n);
        float4 v[8], total = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (r < ranks) v[r] = cluster_read(at, r);
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (r < ranks) total.x += v[r].x, total.y += v[r].y, total.z += v[r].z, total.w += v[r].w;
        store(m0 + m, n0 + n, total);
    }
    cluster_sync();  // no block leaves while its sums are read
}

// Adds to higher[b] and equal[b] how many candidates score above and as true[b]. Candidate n is entity first + n; left
// out are entities own[b] and members[begin[b]:end[b]], which ascend.
template <int BM, int BN, int TM, int TN, int BK, int UNROLL, int BLOCKS>
__global__ void __launch_bounds__(Tile<BM, BN, TM, TN, BK, UNROLL>::THREADS, BLOCKS)
    count_above(const float *q, const float *w, const float *c, const float *true_score, const long long *begin,
                const long long *end, const int *members, const long long *own, unsigned long long *higher,
                unsigned long long *equal, int B, int N, int D, int first) {
    typedef Tile<BM, BN, TM, TN, BK, UNROLL> T;
    __shared__ unsigned hidden[BM][BN / 32];  // a bit for each element of the tile
    T tile;
    // Blocks start in the order x, y, z: some tiles of queries meet all candidates, then the next, out of the cache.
    const int m0 = (blockIdx.z * gridDim.x + blockIdx.x) * BM, n0 = blockIdx.y * BN;
    if (m0 >= B) return;
    for (int m = threadIdx.x; m < BM; m += T::THREADS) {
        for (int word = 0; word < BN / 32; word++) {
            const int inside = N - n0 - word * 32;
            hidden[m][word] = inside >= 32 ? 0u : inside <= 0 ? ~0u : ~0u << inside;
        }
        if (m0 + m >= B) continue;
        const auto hide = [&](long long n) { hidden[m][n / 32] |= 1u << n % 32; };
        const long long least = (long long)first + n0, mine = own[m0 + m] - least, stop = end[m0 + m];
        if (mine >= 0 && mine < BN) hide(mine);
        long long low = begin[m0 + m], high = stop;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (members[middle] < least) low = middle + 1;
            else high = middle;
        }
        for (; low < stop && members[low] < least + BN; low++) hide(members[low] - least);
    }
    tile.sum(q, w, c, m0, n0, B, N, D, 0, D);
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const int m = tile.row_of(i), b = m0 + m;
        const float reference = b < B ? true_score[b] : 0.0f;
        int count = 0;  // those above in the upper half, those equal in the lower
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const unsigned seen = ~hidden[m][tile.col_of(j) / 32] >> tile.col_of(j) % 32;
#pragma unroll
            for (int jj = 0; jj < 4; jj++) {
                const float score = -tile.acc[i][j + jj];
                if (seen >> jj & 1) count += score > reference ? 0x10000 : score == reference ? 1 : 0;
            }
        }
#pragma unroll
        for (int step = 2; step < 16; step *= 2) count += __shfl_xor_sync(~0u, count, step);  // the lanes of a row
        if (b < B && (threadIdx.x & 14) == 0) {
            if (count >> 16) atomicAdd(higher + b, (unsigned long long)(count >> 16));
            if (count & 0xffff) atomicAdd(equal + b, (unsigned long long)(count & 0xffff));
        }
    }
}

// The score of query b with row b of c [B, D]. A warp takes 32 queries, a lane one of them.
__global__ void __launch_bounds__(32) true_scores(const float *q, const float *w, const float *c, float *out, int B, int D) {
    __shared__ float tile[3][32][33];
    const int lane = threadIdx.x, m0 = blockIdx.x * 32;
    const unsigned to = address(&tile[0][0][lane]);
    float acc = 0.0f;
    for (int k = lane; k < D + lane; k += 32) {
        for (int r = 0; r < 32; r++) {
            const long long from = (long long)min(m0 + r, B - 1) * D + k;
            copy(to + r * 33 * 4, q + from, k < D);
            copy(to + (32 + r) * 33 * 4, w + from, k < D);
            copy(to + (64 + r) * 33 * 4, c + from, k < D);
        }
        copies_done();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 32; i++)
            acc = __fadd_rn(acc, fabsf(__fmaf_rn(-tile[1][lane][i], tile[2][lane][i], tile[0][lane][i])));
        __syncwarp();
    }
    if (m0 + lane < B) out[m0 + lane] = -acc;
}

// ---------------------------------------------------------------------------------------------------------- gradients

// g with its sign flipped where x is negative.
__device__ __forceinline__ float signed_by(float g, float x) {
    return __uint_as_float(__float_as_uint(g) ^ (__float_as_uint(x) & 0x80000000u));
}

// Given g [B, N] and s = g sign(q − w c): dq = −Σ_n s and dw = Σ_n s c in dqw [tiles of candidates, 2, B, D], and
// dc = Σ_b s w, over the queries of this block, in dc [chunks, N, D].
template <int FT, int TN, int WARPS, int MB, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    gradients(const float *q, const float *w, const float *c, const float *g, float *dqw, float *dc, int B, int N, int D,
              int chunk) {
    constexpr int THREADS = WARPS * 32, BN = TN * WARPS, BD = 32 * FT;
    constexpr int BUFFER = MB * (BN + 2 * BD);  // g [MB, BN]; q and w [MB, 2, BD]
    constexpr int SUMS = MB * 2 * BD;           // [MB, 2, BD] of one warp
    static_assert(THREADS % (2 * BD) == 0 && (THREADS % BN == 0 || BN % THREADS == 0) && SUMS % THREADS == 0);
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int d0 = blockIdx.x * BD, n0 = blockIdx.y * BN, first = blockIdx.z * chunk, last = min(first + chunk, B);
    // This thread's first element of what it copies and what it stores, for queries from `first` on.
    const int d = d0 + tid % BD, n = n0 + tid % BN, row = first + tid / BD;
    g += (long long)(first + tid / BN) * N + n;
    q += (long long)row * D + d;
    w += (long long)row * D + d;
    dqw += ((blockIdx.y * 2LL + tid / BD % 2) * B + first + tid / (2 * BD)) * D + d;
    dc += (long long)blockIdx.z * N * D;

    const auto stage = [&](int m0, unsigned to) {
#pragma unroll
        for (int i = 0; i < MB * BN; i += THREADS)
            copy(to + (tid + i) * 4, g + (long long)i / BN * N + i % BN, m0 + tid / BN + i / BN < last && n + i % BN < N);
        to += (MB * BN + tid / BD * 2 * BD + tid % BD) * 4;
#pragma unroll
        for (int i = 0; i < MB; i += THREADS / BD) {
            const bool inside = m0 + tid / BD + i < last && d < D;
            copy(to + i * 2 * BD * 4, q + (long long)i * D, inside);
            copy(to + (i * 2 + 1) * BD * 4, w + (long long)i * D, inside);
        }
        g += (long long)MB * N, q += (long long)MB * D, w += (long long)MB * D;
    };
    // Adds the warps' sums of the queries from m0 and stores them.
    const auto finish = [&](int m0, const float *from) {
#pragma unroll
        for (int i = 0; i < MB; i += THREADS / (2 * BD)) {
            float total = 0.0f;
#pragma unroll
            for (int k = 0; k < WARPS; k++) total += from[k * SUMS + i * 2 * BD + tid];
            if (m0 + tid / (2 * BD) + i < last && d < D) dqw[(long long)i * D] = total;
        }
        dqw += (long long)MB * D;
    };

    unsigned filled = address(memory);
    stage(first, filled);
    float e[FT][TN], de[FT][TN];
#pragma unroll
    for (int f = 0; f < FT; f++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            const int n = n0 + warp * TN + j, d = d0 + f * 32 + lane;
            e[f][j] = n < N && d < D ? c[(long long)n * D + d] : 0.0f;
            de[f][j] = 0.0f;
        }
    const float *up = (float *)memory + warp * TN, *own = (float *)memory + MB * BN + lane;
    float *sums = (float *)memory + 2 * BUFFER, *sums_before = sums + WARPS * SUMS;
    int ahead = BUFFER;  // from the buffer that is read to the one that is filled
#pragma unroll 1
    for (int m0 = first; m0 < last; m0 += MB) {
        copies_done();
        __syncthreads();
        filled += ahead * 4;
        if (m0 + MB < last) stage(m0 + MB, filled);
        if (m0 > first) finish(m0 - MB, sums_before);
        float *to = sums + warp * SUMS + lane;
#pragma unroll 1
        for (int m = 0; m < MB; m++, up += BN, own += 2 * BD, to += 2 * BD) {
            float a[FT], b[FT], sum_q[FT], sum_w[FT], s[4];
#pragma unroll
            for (int f = 0; f < FT; f++) {
                a[f] = own[f * 32], b[f] = own[f * 32 + BD];
                sum_q[f] = sum_w[f] = 0.0f;
            }
#pragma unroll
            for (int j = 0; j < TN; j++) {
                if (j % 4 == 0) *(float4 *)s = *(const float4 *)(up + j);
#pragma unroll
                for (int f = 0; f < FT; f++) {
                    const float v = signed_by(s[j % 4], __fmaf_rn(-b[f], e[f][j], a[f]));
                    sum_q[f] -= v;
                    sum_w[f] = __fmaf_rn(v, e[f][j], sum_w[f]);
                    de[f][j] = __fmaf_rn(v, b[f], de[f][j]);
                }
            }
#pragma unroll
            for (int f = 0; f < FT; f++) to[f * 32] = sum_q[f], to[f * 32 + BD] = sum_w[f];
        }
        up += ahead - MB * BN, own += ahead - MB * 2 * BD;
        ahead = -ahead;
        float *const swap = sums;
        sums = sums_before, sums_before = swap;
    }
    __syncthreads();
    if (first < last) finish(first + (last - first - 1) / MB * MB, sums_before);
#pragma unroll
    for (int f = 0; f < FT; f++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            const int n = n0 + warp * TN + j, d = d0 + f * 32 + lane;
            if (n < N && d < D) dc[(long long)n * D + d] = de[f][j];
        }
}

// to[i] = Σ_p from[p, i], twice: two lists of sums in one launch.
__global__ void __launch_bounds__(256)
    add_parts(const float *from, float *to, int parts, int size, const float *from2, float *to2, int parts2, int size2) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i >= size) i -= size, from = from2, to = to2, parts = parts2, size = size2;
    if (i >= size) return;
    float total = 0.0f;
#pragma unroll 8
    for (int p = 0; p < parts; p++) total += from[(long long)p * size + i];
    to[i] = total;
}
