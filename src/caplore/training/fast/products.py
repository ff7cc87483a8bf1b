"""Matrix products of bf16 that stay in float32."""

import torch
from jaxtyping import Float
from torch import Tensor


def product(a: Float[Tensor, "rows dim"], b: Float[Tensor, "others dim"]) -> Float[Tensor, "rows others"]:
    """a @ b.T in float32, whatever precision the two are in."""
    return torch.mm(a, b.T, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float().T
