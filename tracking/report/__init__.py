"""One page of all verdicts, and the look that it shares with the site of the documentation."""

from featurelab.tracking.report.claims import STATUSES as STATUSES
from featurelab.tracking.report.claims import parts as parts
from featurelab.tracking.report.claims import shown as shown
from featurelab.tracking.report.downloads import as_csv as as_csv
from featurelab.tracking.report.downloads import as_json as as_json
from featurelab.tracking.report.page import duration as duration
from featurelab.tracking.report.page import render as render
from featurelab.tracking.report.page import summary as summary
from featurelab.tracking.report.page import templates as templates
