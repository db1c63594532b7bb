"""Images: sources, storage, augmentation and batches."""

from cotransport.data.arrays import as_images
from cotransport.data.batches import Batch, Mixed, Shard, steps_per_epoch, training_batches
from cotransport.data.evaluation import channel_statistics, evaluation_chunks, evaluation_squares, sample
from cotransport.data.images import EncodedImages, Images, LabelledImages, PixelImages, Vectors, concatenate
from cotransport.data.labels import Label
from cotransport.data.loading import resize
from cotransport.data.sources import (
    Source,
    as_labelled,
    as_splits,
    load_data_set,
    open_source,
    prefer_folder,
    usual_augmentation,
)
from cotransport.data.splits import DataSet
from cotransport.data.workers import AHEAD, default_workers

__all__ = [
    "AHEAD",
    "Batch",
    "DataSet",
    "EncodedImages",
    "Images",
    "Label",
    "LabelledImages",
    "Mixed",
    "PixelImages",
    "Shard",
    "Source",
    "Vectors",
    "as_images",
    "as_labelled",
    "as_splits",
    "channel_statistics",
    "concatenate",
    "default_workers",
    "evaluation_chunks",
    "evaluation_squares",
    "load_data_set",
    "open_source",
    "prefer_folder",
    "resize",
    "sample",
    "steps_per_epoch",
    "training_batches",
    "usual_augmentation",
]
