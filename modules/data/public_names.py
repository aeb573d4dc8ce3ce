"""The classes of public datasets, in the order of their integer labels."""

DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
EMOTIONS = ("angry", "disgust", "fear", "happy", "sad", "surprise", "neutral")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
FASHION = (
    "T - shirt / top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
OFFICE_HOME = (
    "Alarm Clock", "Backpack", "Batteries", "Bed", "Bike", "Bottle", "Bucket", "Calculator", "Calendar", "Candles",
    "Chair", "Clipboards", "Computer", "Couch", "Curtains", "Desk Lamp", "Drill", "Eraser", "Exit Sign", "Fan",
    "File Cabinet", "Flipflops", "Flowers", "Folder", "Fork", "Glasses", "Hammer", "Helmet", "Kettle", "Keyboard",
    "Knives", "Lamp Shade", "Laptop", "Marker", "Monitor", "Mop", "Mouse", "Mug", "Notebook", "Oven", "Pan",
    "Paper Clip", "Pen", "Pencil", "Postit Notes", "Printer", "Push Pin", "Radio", "Refrigerator", "Ruler", "Scissors",
    "Screwdriver", "Shelf", "Sink", "Sneakers", "Soda", "Speaker", "Spoon", "TV", "Table", "Telephone", "ToothBrush",
    "Toys", "Trash Can", "Webcam",
)  # fmt: skip
# the birds of ImageNet, by their integer labels: WordNet's, 59 of them
IMAGENET_BIRDS = dict(
    zip(
        (*range(7, 25), *range(80, 101), *range(127, 147)),
        (
            "cock", "hen", "ostrich", "brambling", "goldfinch", "house finch", "junco", "indigo bunting", "robin",
            "bulbul", "jay", "magpie", "chickadee", "water ouzel", "kite", "bald eagle", "vulture", "great grey owl",
            "black grouse", "ptarmigan", "ruffed grouse", "prairie chicken", "peacock", "quail", "partridge",
            "African grey", "macaw", "sulphur-crested cockatoo", "lorikeet", "coucal", "bee eater", "hornbill",
            "hummingbird", "jacamar", "toucan", "drake", "red-breasted merganser", "goose", "black swan",
            "white stork", "black stork", "spoonbill", "flamingo", "little blue heron", "American egret", "bittern",
            "crane", "limpkin", "European gallinule", "American coot", "bustard", "ruddy turnstone",
            "red-backed sandpiper", "redshank", "dowitcher", "oystercatcher", "pelican", "king penguin", "albatross",
        ),
        strict=True,
    )
)  # fmt: skip
STL10 = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
PACS = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
TERRA_INCOGNITA = (
    "bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel",
)  # fmt: skip
VLCS = ("bird", "car", "chair", "dog", "person")

# super-class -> its five classes; the super-classes in the order of their labels
CIFAR100_COARSE = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
CIFAR100 = tuple(sorted(name for names in CIFAR100_COARSE.values() for name in names))
# (100,): the super-class of each class
CIFAR100_TO_COARSE = tuple(
    next(index for index, names in enumerate(CIFAR100_COARSE.values()) if name in names) for name in CIFAR100
)

MISSPELT = {"cra": "crab"}  # so on the hub
