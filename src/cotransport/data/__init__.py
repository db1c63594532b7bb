"""Images: sources, storage, augmentation and batches."""

from cotransport.data.arrays import images_of
from cotransport.data.batches import (
    Batch,
    Shard,
    channel_statistics,
    evaluation_chunks,
    evaluation_squares,
    sample,
    steps_per_epoch,
    training_batches,
)
from cotransport.data.images import (
    EncodedImages,
    Images,
    Label,
    LabelledImages,
    PixelImages,
    Vectors,
    fitted,
    joined,
)
from cotransport.data.sources import Source, folder_first, labelled, load, open_source
from cotransport.data.splits import DataSet
from cotransport.data.workers import usual_workers

__all__ = [
    "Batch",
    "DataSet",
    "EncodedImages",
    "Images",
    "Label",
    "LabelledImages",
    "PixelImages",
    "Shard",
    "Source",
    "Vectors",
    "channel_statistics",
    "evaluation_chunks",
    "evaluation_squares",
    "fitted",
    "folder_first",
    "images_of",
    "joined",
    "labelled",
    "load",
    "open_source",
    "sample",
    "steps_per_epoch",
    "training_batches",
    "usual_workers",
]
