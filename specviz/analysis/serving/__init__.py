"""What a load of many kinds of text needs: throughput, waiting, memory."""
