#!/usr/bin/env python3
"""Writes the gradient all-reduces of one training step of three well-known models.

The shapes are those of the published architectures (He et al. 2015, Devlin et al. 2018, Radford et
al. 2019), spelled out below; no framework is needed. Data-parallel training all-reduces every
gradient once a step, in about the reverse of the order in which parameters are used, either tensor
by tensor or packed into buckets: a bucket is closed by the tensor that makes it reach 25 MiB.

usage: generate.py [DIRECTORY]    writes MODEL.tensors.txt and MODEL.buckets.txt
       generate.py --check        compares with the files next to this script
"""
import os
import sys

BUCKET_BYTES = 25 << 20
ELEMENT_BYTES = 4


def product(shape):
    result = 1
    for n in shape:
        result *= n
    return result


def resnet50():
    """Weights of convolutions (no biases), scale and shift of each batch norm, the classifier."""
    tensors = []

    def convolution(name, inputs, outputs, kernel):
        tensors.append((name + ".conv.weight", (outputs, inputs, kernel, kernel)))
        tensors.append((name + ".norm.scale", (outputs,)))
        tensors.append((name + ".norm.shift", (outputs,)))

    convolution("stem", 3, 64, 7)
    inputs = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for block in range(blocks):
            name = f"stage{stage}.block{block}"
            convolution(name + ".reduce", inputs, width, 1)
            convolution(name + ".spatial", width, width, 3)
            convolution(name + ".expand", width, 4 * width, 1)
            if block == 0:
                convolution(name + ".shortcut", inputs, 4 * width, 1)
            inputs = 4 * width
    tensors.append(("classifier.weight", (1000, 2048)))
    tensors.append(("classifier.bias", (1000,)))
    return tensors


def linear(tensors, name, inputs, outputs):
    tensors.append((name + ".weight", (outputs, inputs)))
    tensors.append((name + ".bias", (outputs,)))


def layer_norm(tensors, name, width):
    tensors.append((name + ".scale", (width,)))
    tensors.append((name + ".shift", (width,)))


def bert_base():
    """BERT-base uncased: the embeddings, 12 encoder layers and the pooler; no task head."""
    width, tensors = 768, []
    tensors.append(("embedding.word", (30522, width)))
    tensors.append(("embedding.position", (512, width)))
    tensors.append(("embedding.segment", (2, width)))
    layer_norm(tensors, "embedding.norm", width)
    for layer in range(12):
        name = f"layer{layer}"
        for part in ("query", "key", "value", "output"):
            linear(tensors, f"{name}.attention.{part}", width, width)
        layer_norm(tensors, name + ".attention.norm", width)
        linear(tensors, name + ".feed.up", width, 4 * width)
        linear(tensors, name + ".feed.down", 4 * width, width)
        layer_norm(tensors, name + ".feed.norm", width)
    linear(tensors, "pooler", width, width)
    return tensors


def gpt2():
    """GPT-2 small: the output layer shares the word embedding, so it adds no gradient."""
    width, tensors = 768, []
    tensors.append(("embedding.word", (50257, width)))
    tensors.append(("embedding.position", (1024, width)))
    for layer in range(12):
        name = f"layer{layer}"
        layer_norm(tensors, name + ".norm1", width)
        linear(tensors, name + ".attention.qkv", width, 3 * width)
        linear(tensors, name + ".attention.output", width, width)
        layer_norm(tensors, name + ".norm2", width)
        linear(tensors, name + ".feed.up", width, 4 * width)
        linear(tensors, name + ".feed.down", 4 * width, width)
    layer_norm(tensors, "norm", width)
    return tensors


# Published totals of parameters.
MODELS = {
    "resnet50": (resnet50, 25_557_032),
    "bert-base": (bert_base, 109_482_240),
    "gpt2": (gpt2, 124_439_808),
}


def buckets(tensors):
    """Lists of tensors, in the order in which their gradients become ready."""
    result, current, size = [], [], 0
    for tensor in tensors:
        current.append(tensor)
        size += product(tensor[1]) * ELEMENT_BYTES
        if size >= BUCKET_BYTES:
            result.append(current)
            current, size = [], 0
    return result + ([current] if current else [])


def lists_of(model):
    make, total = MODELS[model]
    tensors = make()
    parameters = sum(product(shape) for _, shape in tensors)
    if parameters != total:
        raise SystemExit(f"{model}: {parameters} parameters, but {total} are published")
    backward = tensors[::-1]
    head = (
        f"# {model}: gradients of one training step, {parameters} parameters, float32.\n"
        "# Written by generate.py. Columns: collective count type op\n"
    )
    single = head + "".join(
        f"allreduce {product(shape)} float32 sum  # {name} {'x'.join(map(str, shape))}\n"
        for name, shape in backward
    )
    packed = head + "".join(
        f"allreduce {sum(product(s) for _, s in bucket)} float32 sum"
        f"  # {len(bucket)} tensors, {bucket[0][0]} to {bucket[-1][0]}\n"
        for bucket in buckets(backward)
    )
    return {f"{model}.tensors.txt": single, f"{model}.buckets.txt": packed}


def main(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    files = {}
    for model in MODELS:
        files.update(lists_of(model))
    if arguments == ["--check"]:
        stale = 0
        for name, text in files.items():
            with open(os.path.join(here, name), encoding="ascii") as file:
                same = file.read() == text
            print(("ok      " if same else "FAILED  ") + name)
            stale += not same
        return 1 if stale else 0
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print(__doc__, file=sys.stderr)
        return 2
    directory = arguments[0] if arguments else here
    for name, text in files.items():
        with open(os.path.join(directory, name), "w", encoding="ascii") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
