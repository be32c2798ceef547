"""How many parameters published mixtures of experts have: each sum by hand, and what was
published."""

from __future__ import annotations


def grouped_query(width, queries, keys, size):
    """wq and wo, wk and wv."""
    return 2 * width * queries * size + 2 * width * keys * size


def swiglu(width, hidden):
    return 3 * width * hidden


def ends(width, vocabulary):
    """Embedding, head, and the last norm."""
    return 2 * width * vocabulary + width


def deepseek_v3():
    """Section 4.2: latents of 1536 and 512, 128 heads of 128 + 64, values of 128; the latents'
    norms; 3 dense layers; 256 experts, one shared, a router with a correction per expert."""
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192
    attention += 7168 * (512 + 64) + 512 + 512 * 128 * (128 + 128) + 128 * 128 * 7168
    mixture = 257 * swiglu(7168, 2048) + 7168 * 256 + 256
    layers = 61 * (attention + 2 * 7168) + 3 * swiglu(7168, 18432) + 58 * mixture
    return layers + ends(7168, 129280)


def deepseek_v2(layers, width, heads, hidden, mixture, queries=0):
    """Section 3.1.2 of V2: keys' latents of 512, heads of 128 + 64, values of 128; V2's queries
    have latents of 1536, Lite's come from a matrix; one dense layer."""
    by_head = heads * (128 + 64)
    attention = width * queries + queries + queries * by_head if queries else width * by_head
    attention += width * (512 + 64) + 512 + 512 * heads * (128 + 128) + heads * 128 * width
    dense = swiglu(width, hidden)
    return layers * (attention + 2 * width) + dense + (layers - 1) * mixture + ends(width, 102400)


def deepseek_v2_mixture(width, experts, hidden):
    """Two shared experts, and a router without bias."""
    return (experts + 2) * swiglu(width, hidden) + experts * width


def qwen3(layers, width, queries, hidden):
    """Norms of queries and keys have a head's 128 elements."""
    attention = grouped_query(width, queries, 4, 128) + 2 * 128
    mixture = 128 * swiglu(width, hidden) + 128 * width
    return layers * (attention + mixture + 2 * width) + ends(width, 151936)


def gpt_oss(layers, experts):
    """Biases of all projections, of the router and of the experts' products; a sink per head."""
    attention = grouped_query(2880, 64, 8, 64) + 64 * 64 + 2 * 8 * 64 + 2880 + 64
    expert = swiglu(2880, 2880) + 3 * 2880
    mixture = experts * (expert + 2880 + 1)
    return layers * (attention + mixture + 2 * 2880) + ends(2880, 201088)


def llama4(experts, sparse):
    """Layers with experts have a shared one of their size; others a network of 16384."""
    attention = grouped_query(5120, 40, 8, 128) + 2 * 5120
    mixture = (experts + 1) * swiglu(5120, 8192) + 5120 * experts
    dense = (48 - sparse) * swiglu(5120, 16384)
    return 48 * attention + sparse * mixture + dense + ends(5120, 202048)


def mixtral(layers, width, heads, hidden):
    attention = grouped_query(width, heads, 8, 128) + 2 * width
    return layers * (attention + 8 * swiglu(width, hidden) + 8 * width) + ends(width, 32000)


#: Model -> the sum by hand, and what was published: elements in the released checkpoint, or, of
#: Llama 4, in its language model (the released 108,641,793,536 and 401,583,781,376 hold a vision
#: encoder of 871,932,416 as well).
PUBLISHED = {
    "mixtral-8x7b": (mixtral(32, 4096, 32, 14336), 46_702_792_704),
    "mixtral-8x22b": (mixtral(56, 6144, 48, 16384), 140_620_634_112),
    "deepseek-v2": (
        deepseek_v2(60, 5120, 128, 12288, deepseek_v2_mixture(5120, 160, 1536), queries=1536),
        235_741_434_880,
    ),
    "deepseek-v2-lite": (
        deepseek_v2(27, 2048, 16, 10944, deepseek_v2_mixture(2048, 64, 1408)),
        15_706_484_224,
    ),
    "deepseek-v3": (deepseek_v3(), 671_026_419_200),
    "qwen3-30b": (qwen3(48, 2048, 32, 768), 30_532_122_624),
    "qwen3-235b": (qwen3(94, 4096, 64, 1536), 235_093_634_560),
    "gpt-oss-20b": (gpt_oss(24, 32), 20_914_757_184),
    "gpt-oss-120b": (gpt_oss(36, 128), 116_829_156_672),
    "llama4-scout": (llama4(16, 48), 108_641_793_536 - 871_932_416),
    "llama4-maverick": (llama4(128, 24), 401_583_781_376 - 871_932_416),
}
