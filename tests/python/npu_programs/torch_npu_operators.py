"""The operators of torch_npu: caches, and their explicit backwards in an autograd.Function."""

import sys

import torch
import torch_npu

N, D, ITERS = 4, 64, 7
F = N * N + 2 * N


class Pre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, phi, alpha, bias, gamma):
        h_in, h_post, h_res, inv_rms, h_mix, h_pre = torch_npu.npu_mhc_pre(
            x, phi, alpha, bias, gamma=gamma, norm_eps=1e-6, hc_eps=1e-6, out_flag=1
        )
        ctx.save_for_backward(x, phi, alpha, gamma, inv_rms, h_mix, h_pre, h_post)
        return h_in, h_post, h_res

    @staticmethod
    def backward(ctx, grad_h_in, grad_h_post, grad_h_res):
        x, phi, alpha, gamma, inv_rms, h_mix, h_pre, h_post = ctx.saved_tensors
        return torch_npu.npu_mhc_pre_backward(
            x, phi, alpha, grad_h_in, grad_h_post, grad_h_res, inv_rms, h_mix, h_pre, h_post, gamma
        )


class Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits):
        y, norm, total = torch_npu.npu_mhc_sinkhorn(logits, eps=1e-6, num_iters=ITERS, out_flag=1)
        ctx.save_for_backward(norm, total)
        return y

    @staticmethod
    def backward(ctx, grad):
        return torch_npu.npu_mhc_sinkhorn_backward(grad, *ctx.saved_tensors)


class Post(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, h_res, h_out, h_post):
        ctx.save_for_backward(x, h_res, h_out, h_post)
        return torch_npu.npu_mhc_post(x, h_res, h_out, h_post)

    @staticmethod
    def backward(ctx, grad):
        return torch_npu.npu_mhc_post_backward(grad, *ctx.saved_tensors)


def layer(pre, sinkhorn, post, x, phi, alpha, bias, gamma):
    h_in, h_post, logits = pre(x, phi, alpha, bias, gamma)
    return post(x, sinkhorn(logits), torch.tanh(h_in), h_post)


def plain_pre(x, phi, alpha, bias, gamma):
    return torch_npu.npu_mhc_pre(x, phi, alpha, bias, gamma=gamma)[:3]


def plain_sinkhorn(logits):
    return torch_npu.npu_mhc_sinkhorn(logits, num_iters=ITERS)[0]


torch.npu.set_device("npu:0")
generator = torch.Generator(device="npu").manual_seed(5)


def parameter(*shape, scale=1.0):
    value = torch.randn(*shape, generator=generator, device="npu") * scale
    return value.requires_grad_()


names = ("x", "phi", "alpha", "bias", "gamma")
values = (
    parameter(3, 5, N, D),
    parameter(F, N * D, scale=(N * D) ** -0.5),
    parameter(3),
    parameter(F),
    parameter(N, D),
)
result = {name: value.detach().cpu() for name, value in zip(names, values, strict=True)}
ways = {
    "explicit": (Pre.apply, Sinkhorn.apply, Post.apply),
    "autograd": (plain_pre, plain_sinkhorn, torch_npu.npu_mhc_post),
}
for way, functions in ways.items():
    for value in values:
        value.grad = None
    y = layer(*functions, *values)
    y.square().sum().backward()
    result[way] = [t.detach().cpu() for t in (y, *(value.grad for value in values))]
    print(way, float(y.sum()))
torch.save(result, sys.argv[1])
