"""Programs whose functions run on different devices."""

from __future__ import annotations

#: Two stages on a mesh of four devices each; activations and their gradients move between them.
PIPELINE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
first, last = (Mesh(np.array(some), ("data",)) for some in (devices[:4], devices[4:]))
whole, rows = ([NamedSharding(m, spec) for m in (first, last)] for spec in (P(), P("data")))

def layer(w, x):
    return jnp.tanh(x @ w)

def backward(w, x, g):
    _, back = jax.vjp(layer, w, x)
    return w - 0.1 * back(g)[0]

def losses(w, x):
    loss, (dw, dx) = jax.value_and_grad(lambda w, x: jnp.mean(layer(w, x) ** 2), (0, 1))(w, x)
    return loss, w - 0.1 * dw, dx

forward = jax.jit(layer, out_shardings=rows[0])
backward = jax.jit(backward, out_shardings=whole[0])
losses = jax.jit(losses, out_shardings=(whole[1], whole[1], rows[1]))
w, v = (jax.device_put(np.ones((256, 256), np.float32), place) for place in whole)
for _ in range(4):
    x = jax.device_put(np.ones((64, 256), np.float32), rows[0])
    loss, v, g = losses(v, jax.device_put(forward(w, x), rows[1]))
    w = backward(w, x, jax.device_put(g, rows[0]))
"""
#: Four layers on a device each.
ONE_EACH = """
import jax, jax.numpy as jnp, numpy as np
devices = jax.devices()
ws = [jax.device_put(np.ones((256, 256), np.float32), devices[n]) for n in range(4)]

@jax.jit
def forward(w, x):
    return jnp.tanh(x @ w)

@jax.jit
def backward(w, x, g):
    _, back = jax.vjp(forward, w, x)
    dw, dx = back(g)
    return w - 0.1 * dw, dx

for _ in range(4):
    x, taken = np.ones((64, 256), np.float32), []
    for n in range(4):
        taken.append(jax.device_put(x, devices[n]))
        x = forward(ws[n], taken[n])
    for n in reversed(range(4)):
        ws[n], x = backward(ws[n], taken[n], jax.device_put(x, devices[n]))
"""
#: An actor on the first device, learners on the others.
LEARNERS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
actor, *others = jax.devices()
mesh = Mesh(np.array(others), ("data",))
whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

@jax.jit
def act(p, x):
    return jnp.tanh(x @ p) @ p

@jax.jit
def learn(p, xs, ys):
    x, y = jnp.concatenate(xs), jnp.concatenate(ys)
    loss, g = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(x @ p) @ p - y) ** 2))(p)
    return p - 0.1 * g, loss

p = jax.device_put(np.ones((512, 512), np.float32), whole)
mine = jax.device_put(p, actor)
for _ in range(4):
    xs, ys = [], []
    for _ in range(3):
        x = jax.device_put(np.ones((28, 512), np.float32), actor)
        xs.append(x)
        ys.append(act(mine, x))
    p, loss = learn(p, jax.device_put(xs, rows), jax.device_put(ys, rows))
    mine = jax.device_put(p, actor)
"""
#: What a run refuses: an array on the devices of the other stage.
NOT_MOVED = PIPELINE.replace("jax.device_put(forward(w, x), rows[1])", "forward(w, x)")
#: The first device of each stage computes what the others do not.
CONDITIONAL = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
meshes = [Mesh(np.array(some), ("data",)) for some in (devices[:4], devices[4:])]
rows = [NamedSharding(mesh, P("data")) for mesh in meshes]

def some(x):
    first = jax.lax.axis_index("data") == 0
    return jax.lax.cond(first, lambda x: x @ x.T @ x, lambda x: x, x)

spec = P("data")
layers = [jax.jit(jax.shard_map(some, mesh=m, in_specs=spec, out_specs=spec)) for m in meshes]
x = jax.device_put(np.ones((64, 256), np.float32), rows[0])
for _ in range(4):
    x = jax.device_put(layers[1](jax.device_put(layers[0](x), rows[1])), rows[0])
"""
#: A key, which is two whole numbers, goes from stage to stage.
KEYS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
meshes = [Mesh(np.array(some), ("data",)) for some in (devices[:4], devices[4:])]
whole = [NamedSharding(mesh, P()) for mesh in meshes]
def noise(k):
    return jax.random.normal(k, (512, 512)), jax.random.split(k)[0]

noises = [jax.jit(noise, out_shardings=place) for place in whole]
k = jax.device_put(jax.random.key(0), whole[0])
for _ in range(4):
    _, k = noises[0](k)
    _, k = noises[1](jax.device_put(k, whole[1]))
    k = jax.device_put(k, whole[0])
"""
#: The host reads the first stage's loss before it calls the second stage, which takes none of it.
READS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices()
meshes = [Mesh(np.array(some), ("data",)) for some in (devices[:4], devices[4:])]
whole = [NamedSharding(mesh, P()) for mesh in meshes]

def update(w):
    return w - 0.1 * w @ w, jnp.mean(w)

updates = [jax.jit(update, out_shardings=place) for place in whole]
w, v = (jax.device_put(np.ones((512, 512), np.float32), place) for place in whole)
for _ in range(4):
    w, loss = updates[0](w)
    print(float(loss))
    v, _ = updates[1](v)
"""
