"""The networks that generate.py exports: functions returning a torch module and its example inputs by name.

Where the transformers or torchvision package has an architecture it is taken from there; a Llama-like decoder and a
U-Net are also written out plainly, the way most model code spells them.
"""
import torch
import torch.nn.functional as F
import torchvision.models
import transformers
from torch import nn
from transformers.models.whisper.modeling_whisper import WhisperEncoder

LENGTH = 128


class Call(nn.Module):
    """Calls a transformers model with keyword inputs and returns one of its outputs."""

    def __init__(self, model, names, output):
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs):
        return getattr(self.model(**dict(zip(self.names, inputs))), self.output)


def dynamic_shapes(network, axes):
    """torch.export wants the shapes of a `*inputs` parameter as one nested tuple."""
    return (tuple(axes),) if isinstance(network, Call) else tuple(axes)


def tokens(vocabulary, length=LENGTH):
    return {"input_ids": torch.randint(0, vocabulary, (1, length))}


def masked(inputs):
    return inputs | {"attention_mask": torch.ones_like(inputs["input_ids"])}


def image(size=224):
    return {"x": torch.randn(1, 3, size, size)}


def enliven(network, inputs):
    """Leave no zeros and ones (biases, norms) where mistakes would not show, and let no signal fade on its way."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.numel() == max(parameter.shape):
                parameter.add_(0.1 * torch.randn_like(parameter))
        norms = [module.train() for module in network.eval().modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = 1.0  # the statistics become those of the next run
        if norms:
            network(*inputs.values())


# --- transformers and torchvision -------------------------------------------------------------------------------------


def bert(attention="sdpa"):
    config = transformers.BertConfig(attn_implementation=attention)
    return encoder(transformers.BertModel(config, add_pooling_layer=False))


def minilm(weights):
    return encoder(transformers.AutoModel.from_pretrained(weights))


def encoder(model):
    inputs = masked(tokens(30522))
    return Call(model, list(inputs), "last_hidden_state"), inputs


def decoder(model, inputs, mask):
    inputs = masked(inputs) if mask else inputs
    return Call(model, list(inputs), "logits"), inputs


def gpt2(mask=False):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    return decoder(model, tokens(50257), mask)


def llama_hf(mask=False):
    config = transformers.LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=8192,
        use_cache=False,
    )
    return decoder(transformers.LlamaForCausalLM(config), tokens(8192), mask)


def mixtral_hf(mask=False):
    config = transformers.MixtralConfig(
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=8192,
        num_local_experts=8,
        use_cache=False,
        experts_implementation="batched_mm",
    )
    return decoder(transformers.MixtralForCausalLM(config), tokens(8192, length=16), mask)


def vit():
    model = transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False)
    return Call(model, ["pixel_values"], "last_hidden_state"), image()


def whisper_encoder():
    config = transformers.WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return Call(WhisperEncoder(config), ["input_features"], "last_hidden_state"), {"mel": torch.randn(1, 80, 3000)}


def vision(name):
    return torchvision.models.get_model(name, weights=None), image()


# --- the same architectures, small enough to run anywhere -------------------------------------------------------------

TINY = {"vocab_size": 128, "max_position_embeddings": 64}


def bert_tiny():
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.BertModel(transformers.BertConfig(**TINY, **sizes), add_pooling_layer=False)
    inputs = masked(tokens(128, length=16))
    return Call(model, list(inputs), "last_hidden_state"), inputs


def gpt2_tiny():
    sizes = {"vocab_size": 128, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, use_cache=False))
    return decoder(model, tokens(128, length=16), mask=True)


def llama_tiny():
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**TINY, **sizes, num_key_value_heads=2, use_cache=False)
    return decoder(transformers.LlamaForCausalLM(config), tokens(128, length=16), mask=True)


def regnet_tiny():
    blocks = {"depth": 3, "w_0": 16, "w_a": 16.0, "w_m": 2.0, "group_width": 8, "se_ratio": 0.25}
    stages = torchvision.models.regnet.BlockParams.from_init_params(**blocks)
    return torchvision.models.RegNet(stages, num_classes=10, stem_width=16), image(32)


def vit_tiny():
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    model = transformers.ViTModel(config, add_pooling_layer=False)
    return Call(model, ["pixel_values"], "last_hidden_state"), image(32)


def mobilenet_tiny():
    block = torchvision.models.mobilenetv3.InvertedResidualConfig
    rows = [(16, 3, 16, 16, True, "RE", 2, 1), (16, 3, 40, 24, False, "RE", 2, 1), (24, 5, 60, 24, True, "HS", 1, 1)]
    blocks = [block(*row, width_mult=1.0) for row in rows]
    return torchvision.models.MobileNetV3(blocks, last_channel=64, num_classes=10), image(32)


def convnext_tiny():
    stages = [torchvision.models.convnext.CNBlockConfig(*sizes) for sizes in [(16, 32, 1), (32, None, 2)]]
    return torchvision.models.ConvNeXt(stages, num_classes=10), image(32)


# --- a Llama-like decoder ---------------------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    def __init__(self, width, epsilon=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class GroupedAttention(nn.Module):
    """Causal attention in which several query heads share a key and value head; rotary positions."""

    def __init__(self, width, heads, kv_heads, longest):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.head, bias=False)
        self.v = nn.Linear(width, kv_heads * self.head, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        frequencies = 10000.0 ** (-torch.arange(0, self.head, 2).float() / self.head)
        angles = torch.outer(torch.arange(longest).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((longest, longest), float("-inf")).triu(1))

    def forward(self, x):
        return self.step(x, None)[0]

    def step(self, x, past):
        """Attention of new tokens to those before them, whose keys and values may be given; with all keys and values."""
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        start, stop = (0, length) if past is None else (past[0].shape[2], past[0].shape[2] + length)
        cos, sin = self.cos[start:stop], self.sin[start:stop]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        keys, values = self.share(k), self.share(v)
        scores = (q @ keys.transpose(-1, -2)) * self.head**-0.5 + self.mask[start:stop, :stop]
        y = scores.softmax(-1) @ values
        return self.o(y.transpose(1, 2).reshape(batch, length, width)), k, v

    def share(self, x):
        batch, _, length, _ = x.shape
        x = x[:, :, None].expand(batch, self.kv_heads, self.heads // self.kv_heads, length, self.head)
        return x.reshape(batch, self.heads, length, self.head)


class SwiGLU(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """The best `chosen` of several experts; every expert runs, its answer weighted by zero or by its gate."""

    def __init__(self, width, hidden, count, chosen=2):
        super().__init__()
        self.gate = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(SwiGLU(width, hidden) for _ in range(count))
        self.chosen = chosen

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        best, where = weights.topk(self.chosen, -1)
        gates = torch.zeros_like(weights).scatter(-1, where, best / best.sum(-1, keepdim=True))
        return sum(gates[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Decoder(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, hidden, experts=0, vocabulary=8192, longest=LENGTH):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": RMSNorm(width),
                    "attention": GroupedAttention(width, heads, kv_heads, longest),
                    "norm2": RMSNorm(width),
                    "feed": Experts(width, hidden, experts) if experts else SwiGLU(width, hidden),
                }
            )
            for _ in range(layers)
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + layer["attention"](layer["norm1"](x))
            x = x + layer["feed"](layer["norm2"](x))
        return self.head(self.norm(x))


class Step(nn.Module):
    """The next tokens of a decoder, given the keys and values of those before; returns the longer ones too."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, ids, *past):
        x, present = self.decoder.embedding(ids), []
        for layer, k, v in zip(self.decoder.layers, past[::2], past[1::2]):
            y, k, v = layer["attention"].step(layer["norm1"](x), (k, v))
            x, present = x + y, [*present, k, v]
            x = x + layer["feed"](layer["norm2"](x))
        return (self.decoder.head(self.decoder.norm(x)), *present)


def decoder_tiny():
    decoder = Decoder(2, 48, 6, 2, 96, vocabulary=128, longest=32)
    past = {f"{name}{layer}": torch.randn(1, 2, 5, 8) for layer in range(2) for name in ("keys", "values")}
    return Step(decoder), tokens(128, length=3) | past


def llama():
    return Decoder(4, 1024, 16, 4, 2816), tokens(8192)


def llama1b():
    """A thousand million parameters: not checked, but timed (bench/results/gpu.md)."""
    return Decoder(16, 2048, 32, 8, 8192, longest=2048), tokens(8192, length=2048)


def llama_step():
    """One more token after 512."""
    decoder = Decoder(4, 1024, 16, 4, 2816, longest=1024)
    past = {f"{name}{layer}": torch.randn(1, 4, 512, 64) for layer in range(4) for name in ("keys", "values")}
    return Step(decoder), tokens(8192, length=1) | past


def experts():
    return Decoder(2, 512, 8, 2, 1024, experts=8), tokens(8192)


# --- U-Net ------------------------------------------------------------------------------------------------------------


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256)):
        super().__init__()
        self.down = nn.ModuleList(map(self.block, (3, *widths), widths))
        narrowing = list(reversed(widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(narrowing, narrowing[1:]))
        self.up = nn.ModuleList(self.block(2 * width, width) for width in narrowing[1:])
        self.last = nn.Conv2d(widths[0], 1, 1)

    @staticmethod
    def block(inputs, outputs):
        def step(width):
            return nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()

        return nn.Sequential(*step(inputs), *step(outputs))

    def forward(self, x):
        kept = []
        for block in self.down[:-1]:
            kept.append(block(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.down[-1](x)
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat((grow(x), kept.pop()), 1))
        return torch.sigmoid(self.last(x))


def unet():
    return UNet(), image(256)


BUILD = {
    "bert_base": bert,
    "bert_base_eager": lambda: bert("eager"),
    "gpt2": gpt2,
    "gpt2_masked": lambda: gpt2(mask=True),
    "vit_b16": vit,
    "resnet50": lambda: vision("resnet50"),
    "llama4l": llama,
    "llama4l_step": llama_step,
    "llama1b": llama1b,
    "llama4l_hf": llama_hf,
    "llama4l_hf_masked": lambda: llama_hf(mask=True),
    "mobilenetv3l": lambda: vision("mobilenet_v3_large"),
    "efficientnet_b0": lambda: vision("efficientnet_b0"),
    "convnext_t": lambda: vision("convnext_tiny"),
    "unet256": unet,
    "whisper_tiny_enc": whisper_encoder,
    "moe8x2l": experts,
    "mixtral_hf": mixtral_hf,
    "mixtral_hf_masked": lambda: mixtral_hf(mask=True),
    "bert_tiny": bert_tiny,
    "gpt2_tiny": gpt2_tiny,
    "llama_tiny": llama_tiny,
    "regnet_tiny": regnet_tiny,
    "vit_tiny": vit_tiny,
    "mobilenet_tiny": mobilenet_tiny,
    "convnext_tiny": convnext_tiny,
    "decoder_tiny": decoder_tiny,
}
